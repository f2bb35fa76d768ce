/* What Rust cannot call or lay out by itself: DPDK's inline functions, bit fields and large structures
 * that differ between releases. Each function does one thing; all policy is on the Rust side. */
#ifndef KAROO_DPDK_SHIMS_H
#define KAROO_DPDK_SHIMS_H

#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

/* Where the fields of an mbuf are in the installed release, so that reading one is one load in Rust. */
enum karoo_mbuf_offset {
    KAROO_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
    KAROO_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
    KAROO_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
    KAROO_MBUF_PORT = offsetof(struct rte_mbuf, port),
    KAROO_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
    KAROO_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
    KAROO_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
    KAROO_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
    KAROO_MBUF_NEXT = offsetof(struct rte_mbuf, next),
};

/* What the safe layer asks about a port. */
struct karoo_port_info {
    struct rte_device *device;
    char driver[64];
    uint32_t min_mtu;
    uint32_t max_mtu;
    uint16_t max_rx_queues;
    uint16_t max_tx_queues;
    int tx_multi_segs; /* chained mbufs can be transmitted */
    int rx_scatter;    /* packets can be received into chained mbufs */
    int rx_split;      /* they can be split over two pools */
    int rx_checksum;   /* IPv4 and UDP checksums of what is received can be verified */
    int rx_timestamp;  /* packets can be stamped when they are received */
    int tx_timestamp;  /* packets can be sent at a given time */
};

struct karoo_link {
    uint32_t speed_mbps;
    int up;
};

struct karoo_port_options {
    uint16_t rx_queues;
    uint16_t tx_queues;
    uint32_t mtu; /* 0: the device's default */
    int scatter;
    int split; /* receive queues are set up by karoo_rx_queue_setup_split */
    int multi_segs;
    int checksum; /* verify checksums */
    int interrupts; /* receive queues can raise them */
};

/* Whether the device found a checksum of a received packet wrong. */
int karoo_mbuf_bad_checksum(const struct rte_mbuf *mbuf);

/* Datagrams to dst & mask and a port (0: any) go to a queue; IGMP does if mask and dst are 0 and igmp is set. On
 * failure null, and a message in why. */
struct rte_flow *karoo_flow_to_queue(uint16_t port, uint32_t dst, uint32_t mask, uint16_t udp_port, int igmp,
                                     uint16_t queue, char *why, size_t size);
int karoo_flow_destroy(uint16_t port, struct rte_flow *flow);
/* Nothing but what flow rules name reaches the port: to be called before it is configured. */
int karoo_flow_isolate(uint16_t port, char *why, size_t size);

int karoo_errno(void);
unsigned karoo_lcore_id(void);
uint64_t karoo_rdtsc(void);

/* Sends the log to `write(level, text, length)`, from the first call to rte_eal_init on. */
int karoo_log_to(void (*write)(uint32_t level, const char *text, size_t length));

struct rte_mbuf *karoo_pktmbuf_alloc(struct rte_mempool *pool);
int karoo_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count);
void karoo_pktmbuf_free(struct rte_mbuf *mbuf);
char *karoo_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t length);
char *karoo_pktmbuf_prepend(struct rte_mbuf *mbuf, uint16_t length);
void karoo_pktmbuf_trim(struct rte_mbuf *mbuf, uint16_t length);
int karoo_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail);
int karoo_pktmbuf_is_external(const struct rte_mbuf *mbuf);

/* Attaches `length` bytes as the mbuf's data; the caller has already counted the reference. */
void karoo_pktmbuf_attach_extbuf(struct rte_mbuf *mbuf, void *address, uint16_t length,
                                 struct rte_mbuf_ext_shared_info *shared);
void karoo_ext_refcnt_set(struct rte_mbuf_ext_shared_info *shared, uint16_t value);
uint16_t karoo_ext_refcnt_read(const struct rte_mbuf_ext_shared_info *shared);
uint16_t karoo_ext_refcnt_update(struct rte_mbuf_ext_shared_info *shared, int16_t change);

unsigned karoo_ring_enqueue_burst(struct rte_ring *ring, void *const *objects, unsigned count);
unsigned karoo_ring_dequeue_burst(struct rte_ring *ring, void **objects, unsigned count);
unsigned karoo_ring_count(const struct rte_ring *ring);
unsigned karoo_ring_capacity(const struct rte_ring *ring);

int karoo_port_info(uint16_t port, struct karoo_port_info *info);
int karoo_port_configure(uint16_t port, const struct karoo_port_options *options);
/* Sets up a receive queue that puts `header_bytes` of each packet into an mbuf of `headers`, the rest behind it
 * into one of `payloads`. */
int karoo_rx_queue_setup_split(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned socket,
                               struct rte_mempool *headers, uint16_t header_bytes,
                               struct rte_mempool *payloads);
int karoo_port_link(uint16_t port, struct karoo_link *link);
/* Has this thread wait for interrupts of a receive queue from now on. */
int karoo_rx_interrupt_add(uint16_t port, uint16_t queue);
/* Waits for those that this thread was told to wait for; milliseconds at most. */
int karoo_rx_interrupt_wait(int milliseconds);
uint16_t karoo_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t karoo_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);

#endif
