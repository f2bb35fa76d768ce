#!/usr/bin/env python3
"""Graphs as Laminar's compiler makes C of them, beside the same graphs with flow.

    laminar_graphs.py build VITIS OUT [--machine v3,v4] [--cpus 1,2,3]
    laminar_graphs.py run OUT SPEED [--seconds 1] [--rounds 3]

VITIS: a checkout of github.com/ucb-cyarp/vitis; needed are cmake, clang, libxerces-c-dev and
libboost-filesystem-dev. `build` works on a copy in OUT, of which it changes two things: no tests
and no Doxygen, and partitions by an expression, since graphs of filters name none. It makes a
program of each setting: blocks, sub-blocks, both queues, instructions of the machine.
(`scripts/compare-laminar`, which compares outputs, marks a partition in the graph; a second one
that begins within a filter cannot be marked there.)

SPEED: flow's `benches/speed`, built (`cargo bench -p karoo-flow --no-run` tells where). `run` looks
at every setting once, then runs the best three in turns with flow. Laminar's thread for input and
output has the first of the CPUs that `build` was
given, its partitions the others. Flow's partition has the second, and its threads that read and
write are where Linux puts them among the three.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
from pathlib import Path

# Of each graph: its file, and what its second partition holds.
GRAPHS = {
    "FIRRealBench": ("expansion/FIRRealBench", "Expanded_[1-4]_"),
    "FIRRealBenchLarge": ("expansion/FIRRealBenchLarge", "Expanded_([1-9]|[1-9][0-9])_"),
    "FIRRealBenchDirectForm": ("expansion/FIRRealBenchDirectForm", None),
    # A loop holds all of it, which Laminar cannot cut, and neither can flow.
    "agc": ("dsp/agc", None),
}
BLOCKS = [(960, sub) for sub in (1, 8, 48, 96, 240, 480)] + [(3840, 96), (3840, 480)]
QUEUES = ["lockeless_x86", "lockeless_inplace_x86"]

PARTITIONS = """
    for(auto n : design->getNodes()){
        if(GeneralHelper::isType<Node, MasterNode>(n) != nullptr) continue;
        const char* second = getenv("SECOND");
        std::string path = n->getFullyQualifiedName(true);
        bool found = second && std::regex_search(path, std::regex(second));
        n->setPartitionNum(found ? 1 : 0);
    }
"""
INCLUDES = """#include <cstdlib>
#include <regex>
#include "GraphCore/Node.h"
#include "MasterNodes/MasterNode.h"
"""


def compiler(vitis, out):
    """Builds Laminar's compiler, from a copy of its sources."""
    copy = out / "vitis"
    if not copy.exists():
        shutil.copytree(vitis, copy)
        lists = copy / "CMakeLists.txt"
        lists.write_text(lists.read_text().split("#==== Doxygen")[0])
        tool = copy / "src/Tools/multiThreadedGenerator.cpp"
        before, after = tool.read_text().split("    //Print Partitioner and Scheduler\n", 1)
        tool.write_text(INCLUDES + before + PARTITIONS + after)
    built = copy / "built"
    subprocess.run(["cmake", "-S", copy, "-B", built, "-DCMAKE_BUILD_TYPE=Release"], check=True)
    tools = ["multiThreadedGenerator", "simulinkGraphMLImporter"]
    subprocess.run(["make", "-C", built, f"-j{os.cpu_count()}", *tools], check=True)
    return [built / tool for tool in tools]


def make(out, generator, options, name, second, block, sub, queue):
    """One setting: the C, and a program for each machine. Returns what `run` needs to know."""
    parts = 2 if second else 1
    label = f"{name}-{parts}-{block}-{sub}-{queue}"
    made = out / "c" / label
    cpus = ",".join(options.cpus.split(",")[: parts + 1])
    command = [generator, out / f"{name}.graphml", made, name, "--blockSize", str(block)]
    command += ["--subBlockSize", str(sub), "--fifoType", queue, "--partitionMap", f"[{cpus}]"]
    command += ["--fifoCachedIndexes", "producer_consumer_cache", "--telemLevel", "rateOnly"]
    command += ["--printTelem", "--telemReportPeriodSec", "0.2", "--telemCheckBlockFreq", "10"]
    environment = {**os.environ, "SECOND": second} if second else os.environ
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{label}: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
        return []
    # The first input is noise, as it is for flow; the others stay at one.
    driver = made / f"{name}_io_const.c"
    noise = r"\1 = (float)(int)((indDim0 * 2654435761u) & 0xffff) / 32768.0f - 1.0f;"
    driver.write_text(re.sub(r"(port0_\w+\[indDim0\]) = 1;", noise, driver.read_text()))
    listed = (made / f"Makefile_{name}_io_const.mk").read_text()
    sources = [made / file for file in re.search(r"^SRCS=(.*)$", listed, re.M)[1].split()]
    programs = []
    for machine in options.machine.split(","):
        program = out / "bin" / f"{label}-{machine}"
        command = ["clang", "-Ofast", "-std=gnu11", "-w", f"-march=x86-64-{machine}", *sources]
        subprocess.run([*command, "-o", program, "-pthread", "-lm", "-s"], check=True)
        programs.append({"graph": name, "parts": parts, "program": program.name})
    return programs


def build(options):
    out = options.out.resolve()
    for folder in ("bin", "c"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    generator, importer = compiler(options.vitis.resolve(), out)
    stimulus = options.vitis.resolve() / "test/stimulus/simulink"
    jobs = []
    for name, (file, second) in GRAPHS.items():
        graph = out / "bin" / f"{name}.graphml"
        shutil.copy(stimulus / f"{file}.graphml", graph)
        subprocess.run([importer, graph, out / f"{name}.graphml"], check=True, capture_output=True)
        for block, sub in BLOCKS:
            for queue in QUEUES:
                for cut in {None, second}:
                    jobs.append((out, generator, options, name, cut, block, sub, queue))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda job: make(*job), jobs)
        programs = [program for one in made for program in one]
    listed = {"cpus": [int(cpu) for cpu in options.cpus.split(",")], "programs": programs}
    (out / "bin" / "programs.json").write_text(json.dumps(listed, indent=1))
    print(f"{len(programs)} programs in {out}/bin")


def laminar(folder, program, cpus, seconds):
    """Samples a second, in millions: what the slowest partition said last; none if it said none."""
    mapped = ",".join(str(cpu) for cpu in cpus)
    command = ["taskset", "-c", mapped, "stdbuf", "-oL", folder / program["program"]]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        told, _ = run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGKILL)
        told, _ = run.communicate()
    last = dict(re.findall(r"\[(\d+)\]\s+Rate:\s+([\d.]+)", told))
    return min(map(float, last.values())) if last else None


def flow(speed, graph, cpus):
    """The same of flow: the best of its steps. Its plan cuts none of these graphs."""
    mapped = ",".join(str(cpu) for cpu in cpus)
    command = ["taskset", "-c", mapped, speed, "--bench", "graphs", "--rates", str(cpus[1]), graph]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return max(map(float, re.findall(r": ([\d.]+) M samples", told)))


def run(options):
    folder, speed = options.out.resolve() / "bin", options.speed.resolve()
    listed = json.loads((folder / "programs.json").read_text())
    cpus, programs = listed["cpus"], listed["programs"]
    kinds = sorted({(program["graph"], program["parts"]) for program in programs})
    print(f"{'graph':<24} {'CPUs':>4} {'flow':>8} {'Laminar':>8} {'ratio':>6}  best setting")
    for graph, parts in kinds:
        mine = [p for p in programs if (p["graph"], p["parts"]) == (graph, parts)]
        used = cpus[: parts + 1]
        once = [(laminar(folder, p, used, 0.7) or 0.0, p["program"], p) for p in mine]
        best = [p for _, _, p in sorted(once, reverse=True)[:3]]
        told, ours = {p["program"]: [] for p in best}, []
        for _ in range(options.rounds):
            ours.append(flow(speed, folder / f"{graph}.graphml", cpus))
            for p in best:
                told[p["program"]].append(laminar(folder, p, used, options.seconds) or 0.0)
        name, theirs = max(told.items(), key=lambda one: statistics.median(one[1]))
        own, theirs = statistics.median(ours), statistics.median(theirs)
        ratio = own / max(theirs, 1e-9)
        setting = name.removeprefix(graph)
        line = f"{graph:<24} {parts:>4} {own:8.1f} {theirs:8.1f} {ratio:6.2f}  {setting}"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    builds = steps.add_parser("build")
    builds.add_argument("vitis", type=Path)
    builds.add_argument("out", type=Path)
    builds.add_argument("--machine", default="v3,v4")
    builds.add_argument("--cpus", default="1,2,3")
    runs = steps.add_parser("run")
    runs.add_argument("out", type=Path)
    runs.add_argument("speed", type=Path)
    runs.add_argument("--seconds", type=float, default=1.0)
    runs.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    {"build": build, "run": run}[options.step](options)


if __name__ == "__main__":
    main()
