// Moves payloads from where a NIC put them to their places in a chunk. One block per payload.

// One payload: addresses on the device.
struct Move {
    unsigned long long from;
    unsigned long long to;
};

template <typename Unit>
static __device__ void copy(const Move &move, unsigned bytes)
{
    const Unit *from = reinterpret_cast<const Unit *>(move.from);
    Unit *to = reinterpret_cast<Unit *>(move.to);
    for (unsigned i = threadIdx.x; i < bytes / sizeof(Unit); i += blockDim.x)
        to[i] = from[i];
}

// Payloads have `bytes` bytes each. Neighbours in the chunk may share a word, so only whole units of its own are stored.
extern "C" __global__ void gather(const Move *__restrict__ moves, unsigned bytes)
{
    const Move move = moves[blockIdx.x];
    const unsigned long long all = move.from | move.to | bytes;
    if (all % 16 == 0)
        copy<uint4>(move, bytes);
    else if (all % 4 == 0)
        copy<unsigned>(move, bytes);
    else
        copy<unsigned char>(move, bytes);
}
