//! Mutexes whose holders may panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, also if a thread panicked while it held it. For values that are whole at any
/// time: a panic ends the program, or its run, by other ways.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    #[test]
    fn a_holder_that_panicked_leaves_the_value() {
        let mutex = Mutex::new(1);
        let holder = || {
            *super::lock(&mutex) = 2;
            let _held = super::lock(&mutex);
            panic!("as planned");
        };
        let ended = thread::scope(|scope| scope.spawn(holder).join());
        assert!(ended.is_err() && mutex.is_poisoned());
        assert_eq!(*super::lock(&mutex), 2);
    }
}
