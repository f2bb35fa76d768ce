//! Loops in directed graphs: strongly connected components, and a shortest loop through a node.

use std::collections::VecDeque;

/// The strongly connected components that hold a loop, each in ascending order of its nodes.
///
/// Tarjan, *Depth-first search and linear graph algorithms*, 1972, with a stack of our own in place
/// of recursion.
pub(crate) fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let mut number = vec![NEW; next.len()];
    let mut low = vec![0; next.len()];
    let mut on_stack = vec![false; next.len()];
    let mut stack = Vec::new();
    let mut count = 0;
    let mut found = Vec::new();
    for root in 0..next.len() {
        if number[root] != NEW {
            continue;
        }
        let mut calls = vec![(root, 0)];
        while let Some((node, child)) = calls.pop() {
            if child == 0 {
                number[node] = count;
                low[node] = count;
                count += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            if let Some(&to) = next[node].get(child) {
                calls.push((node, child + 1));
                if number[to] == NEW {
                    calls.push((to, 0));
                } else if on_stack[to] {
                    low[node] = low[node].min(number[to]);
                }
                continue;
            }
            if let Some(&(parent, _)) = calls.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] == number[node] {
                let at = stack.iter().rposition(|&other| other == node).unwrap_or(0);
                let mut component = stack.split_off(at);
                for &member in &component {
                    on_stack[member] = false;
                }
                if component.len() > 1 || next[node].contains(&node) {
                    component.sort_unstable();
                    found.push(component);
                }
            }
        }
    }
    found.sort_unstable();
    found
}

/// The shortest loop through `start`, beginning with it.
pub(crate) fn shortest_loop(next: &[Vec<usize>], start: usize) -> Option<Vec<usize>> {
    let mut previous: Vec<Option<usize>> = vec![None; next.len()];
    let mut open = VecDeque::from([start]);
    while let Some(node) = open.pop_front() {
        for &to in &next[node] {
            if to == start {
                let mut cycle = vec![node];
                while let Some(before) =
                    previous[cycle[cycle.len() - 1]].filter(|_| cycle[cycle.len() - 1] != start)
                {
                    cycle.push(before);
                }
                cycle.reverse();
                return Some(cycle);
            }
            if previous[to].is_none() {
                previous[to] = Some(node);
                open.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reach(next: &[Vec<usize>], from: usize) -> Vec<bool> {
        let mut seen = vec![false; next.len()];
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for &to in &next[node] {
                if !std::mem::replace(&mut seen[to], true) {
                    open.push(to);
                }
            }
        }
        seen
    }

    proptest! {
        #[test]
        fn components_are_nodes_that_reach_one_another(
            next in proptest::collection::vec(proptest::collection::vec(0..9usize, 0..4), 9)
        ) {
            let seen: Vec<Vec<bool>> = (0..9).map(|node| reach(&next, node)).collect();
            let reaches = |a: usize, b: usize| seen[a][b];
            let components = components(&next);
            for a in 0..9 {
                for b in 0..9 {
                    let together = components.iter().any(|c| c.contains(&a) && c.contains(&b));
                    prop_assert_eq!(together, reaches(a, b) && reaches(b, a), "{} {}", a, b);
                }
                let cycle = shortest_loop(&next, a);
                prop_assert_eq!(cycle.is_some(), reaches(a, a));
                if let Some(cycle) = cycle {
                    prop_assert_eq!(cycle[0], a);
                    for (at, node) in cycle.iter().enumerate() {
                        prop_assert!(next[*node].contains(&cycle[(at + 1) % cycle.len()]));
                    }
                }
            }
        }
    }
}
