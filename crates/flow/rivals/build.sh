#!/bin/bash
# Builds the programs that `benches/queues` and `benches/speed` can run beside ours: into a folder outside this tree.
#
#   build.sh SPSCQUEUE LAMINAR OUT
#   build.sh futuresdr OUT
#
# SPSCQUEUE: a checkout of github.com/rigtorp/SPSCQueue. LAMINAR: one of
# github.com/ucb-cyarp/laminarCommCharacterize. Clang is needed: Laminar's copies are its built-in.
set -e
here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" = futuresdr ]; then
    # FutureSDR 0.8 uses what Rust gives for all to see from 1.98 on.
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zcrate-attr=feature(float_algebraic) ${MACHINE:--Ctarget-cpu=x86-64-v3}"
    cargo build --release --locked --manifest-path "$here/chain_futuresdr/Cargo.toml" --target-dir "$2/futuresdr"
    cp "$2/futuresdr/release/chain_futuresdr" "$2/"
    exit
fi
spsc=$1 laminar=$2/src out=$3
mkdir -p "$out"
# For the machine that it will run on: x86-64-v3 has AVX2, which Laminar's own settings would use.
machine=${MACHINE:--march=x86-64-v3}
clang++ -O3 -std=c++17 "$machine" -static -pthread -I "$spsc/include" "$here/rigtorp.cpp" \
    -o "$out/rigtorp"
sources=$(ls "$laminar"/laminarFifo{Client,Server,Runner}.c "$laminar"/{timeHelpers,vitisNumaAllocHelpers}.c)
for bytes in 8 16 32 64 128 256 512 1024 2048 4096 8192 16384; do
    blocks=$((400000 / (1 + bytes / 32)))
    # shellcheck disable=SC2086
    clang -Ofast -std=gnu11 "$machine" -static -w -I "$laminar" \
        -DFIFO_BLK_SIZE_CPLX_FLOAT=$((bytes / 8)) -DTRANSACTIONS_BLKS=$blocks \
        "$here/laminar.c" $sources -o "$out/laminar-$bytes" -pthread -lm -latomic \
        -Wl,--wrap=pthread_create,--wrap=pthread_attr_setschedpolicy,--wrap=pthread_attr_setschedparam
done
