#define _GNU_SOURCE
#include "shims.h"

#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>

int karoo_errno(void) { return rte_errno; }

unsigned karoo_lcore_id(void) { return rte_lcore_id(); }

uint64_t karoo_rdtsc(void) { return rte_rdtsc(); }

static void (*log_sink)(uint32_t, const char *, size_t);

static ssize_t log_write(void *cookie, const char *text, size_t length)
{
    (void)cookie;
    int level = rte_log_cur_msg_loglevel();
    log_sink(level < 0 ? RTE_LOG_INFO : (uint32_t)level, text, length);
    return (ssize_t)length;
}

int karoo_log_to(void (*write)(uint32_t, const char *, size_t))
{
    cookie_io_functions_t functions = {.write = log_write};
    FILE *stream;

    log_sink = write;
    stream = fopencookie(NULL, "w", functions);
    if (stream == NULL)
        return -1;
    return rte_openlog_stream(stream);
}

struct rte_mbuf *karoo_pktmbuf_alloc(struct rte_mempool *pool) { return rte_pktmbuf_alloc(pool); }

int karoo_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count)
{
    return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void karoo_pktmbuf_free(struct rte_mbuf *mbuf) { rte_pktmbuf_free(mbuf); }

char *karoo_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t length) { return rte_pktmbuf_append(mbuf, length); }

char *karoo_pktmbuf_prepend(struct rte_mbuf *mbuf, uint16_t length) { return rte_pktmbuf_prepend(mbuf, length); }

void karoo_pktmbuf_trim(struct rte_mbuf *mbuf, uint16_t length) { rte_pktmbuf_trim(mbuf, length); }

int karoo_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail) { return rte_pktmbuf_chain(head, tail); }

int karoo_pktmbuf_is_external(const struct rte_mbuf *mbuf) { return RTE_MBUF_HAS_EXTBUF(mbuf) != 0; }

void karoo_pktmbuf_attach_extbuf(struct rte_mbuf *mbuf, void *address, uint16_t length,
                                 struct rte_mbuf_ext_shared_info *shared)
{
    /* Devices that read it were told so when it was mapped; drivers that copy do not look at it. */
    rte_pktmbuf_attach_extbuf(mbuf, address, (rte_iova_t)(uintptr_t)address, length, shared);
    mbuf->data_len = length;
    mbuf->pkt_len = length;
}

void karoo_ext_refcnt_set(struct rte_mbuf_ext_shared_info *shared, uint16_t value)
{
    rte_mbuf_ext_refcnt_set(shared, value);
}

uint16_t karoo_ext_refcnt_read(const struct rte_mbuf_ext_shared_info *shared)
{
    return rte_mbuf_ext_refcnt_read(shared);
}

uint16_t karoo_ext_refcnt_update(struct rte_mbuf_ext_shared_info *shared, int16_t change)
{
    return rte_mbuf_ext_refcnt_update(shared, change);
}

unsigned karoo_ring_enqueue_burst(struct rte_ring *ring, void *const *objects, unsigned count)
{
    return rte_ring_enqueue_burst(ring, objects, count, NULL);
}

unsigned karoo_ring_dequeue_burst(struct rte_ring *ring, void **objects, unsigned count)
{
    return rte_ring_dequeue_burst(ring, objects, count, NULL);
}

unsigned karoo_ring_count(const struct rte_ring *ring) { return rte_ring_count(ring); }

unsigned karoo_ring_capacity(const struct rte_ring *ring) { return rte_ring_get_capacity(ring); }

#define RX_CHECKSUM (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM)

int karoo_port_info(uint16_t port, struct karoo_port_info *info)
{
    struct rte_eth_dev_info device;
    int ret = rte_eth_dev_info_get(port, &device);

    if (ret != 0)
        return ret;
    memset(info, 0, sizeof(*info));
    info->device = device.device;
    if (device.driver_name != NULL)
        snprintf(info->driver, sizeof(info->driver), "%s", device.driver_name);
    info->min_mtu = device.min_mtu;
    info->max_mtu = device.max_mtu;
    info->max_rx_queues = device.max_rx_queues;
    info->max_tx_queues = device.max_tx_queues;
    info->tx_multi_segs = (device.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
    info->rx_scatter = (device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) != 0;
    info->rx_split = (device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT) != 0 &&
                     device.rx_seg_capa.multi_pools && device.rx_seg_capa.max_nseg >= 2;
    info->rx_checksum = (device.rx_offload_capa & RX_CHECKSUM) == RX_CHECKSUM;
    info->rx_timestamp = (device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0;
    info->tx_timestamp = (device.tx_offload_capa & RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP) != 0;
    return 0;
}

int karoo_mbuf_bad_checksum(const struct rte_mbuf *mbuf)
{
    return (mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_BAD ||
           (mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD;
}

static void say(char *why, size_t size, const struct rte_flow_error *error)
{
    snprintf(why, size, "%s", error->message != NULL ? error->message : rte_strerror(rte_errno));
}

struct rte_flow *karoo_flow_to_queue(uint16_t port, uint32_t dst, uint32_t mask, uint16_t udp_port, int igmp,
                                     uint16_t queue, char *why, size_t size)
{
    struct rte_flow_attr attr = {.ingress = 1};
    struct rte_flow_item_ipv4 ip = {.hdr.dst_addr = rte_cpu_to_be_32(dst)};
    struct rte_flow_item_ipv4 ip_mask = {.hdr.dst_addr = rte_cpu_to_be_32(mask)};
    struct rte_flow_item_udp udp = {.hdr.dst_port = rte_cpu_to_be_16(udp_port)};
    struct rte_flow_item_udp udp_mask = {.hdr.dst_port = udp_port != 0 ? 0xffff : 0};
    struct rte_flow_action_queue to = {.index = queue};
    struct rte_flow_item pattern[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH},
        {.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &ip, .mask = &ip_mask},
        {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &udp_mask},
        {.type = RTE_FLOW_ITEM_TYPE_END},
    };
    struct rte_flow_action actions[] = {
        {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
        {.type = RTE_FLOW_ACTION_TYPE_END},
    };
    struct rte_flow_error error;
    struct rte_flow *flow;

    memset(&error, 0, sizeof(error));
    if (igmp) {
        ip.hdr.next_proto_id = 2;
        ip_mask.hdr.next_proto_id = 0xff;
        pattern[2].type = RTE_FLOW_ITEM_TYPE_END;
    }
    flow = rte_flow_create(port, &attr, pattern, actions, &error);
    if (flow == NULL)
        say(why, size, &error);
    return flow;
}

int karoo_flow_destroy(uint16_t port, struct rte_flow *flow)
{
    struct rte_flow_error error;

    return rte_flow_destroy(port, flow, &error);
}

int karoo_flow_isolate(uint16_t port, char *why, size_t size)
{
    struct rte_flow_error error;
    int ret;

    memset(&error, 0, sizeof(error));
    ret = rte_flow_isolate(port, 1, &error);
    if (ret != 0)
        say(why, size, &error);
    return ret;
}

int karoo_port_configure(uint16_t port, const struct karoo_port_options *options)
{
    struct rte_eth_conf conf;

    memset(&conf, 0, sizeof(conf));
    conf.rxmode.mtu = options->mtu;
    if (options->scatter)
        conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
    if (options->split)
        conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
    if (options->checksum)
        conf.rxmode.offloads |= RX_CHECKSUM;
    if (options->multi_segs)
        conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    conf.intr_conf.rxq = options->interrupts != 0;
    return rte_eth_dev_configure(port, options->rx_queues, options->tx_queues, &conf);
}

int karoo_rx_queue_setup_split(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned socket,
                               struct rte_mempool *headers, uint16_t header_bytes,
                               struct rte_mempool *payloads)
{
    union rte_eth_rxseg segments[2];
    struct rte_eth_dev_info device;
    struct rte_eth_rxconf conf;
    int ret = rte_eth_dev_info_get(port, &device);

    if (ret != 0)
        return ret;
    memset(segments, 0, sizeof(segments));
    segments[0].split.mp = headers;
    segments[0].split.length = header_bytes;
    segments[1].split.mp = payloads; /* length 0: all that is left */
    conf = device.default_rxconf;
    conf.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
    conf.rx_seg = segments;
    conf.rx_nseg = 2;
    return rte_eth_rx_queue_setup(port, queue, descriptors, socket, &conf, NULL);
}

int karoo_port_link(uint16_t port, struct karoo_link *link)
{
    struct rte_eth_link current;
    int ret;

    memset(&current, 0, sizeof(current));
    ret = rte_eth_link_get_nowait(port, &current);
    if (ret != 0)
        return ret;
    link->speed_mbps = current.link_speed;
    link->up = current.link_status == RTE_ETH_LINK_UP;
    return 0;
}

int karoo_rx_interrupt_add(uint16_t port, uint16_t queue)
{
    return rte_eth_dev_rx_intr_ctl_q(port, queue, RTE_EPOLL_PER_THREAD, RTE_INTR_EVENT_ADD, NULL);
}

int karoo_rx_interrupt_wait(int milliseconds)
{
    struct rte_epoll_event event;

    return rte_epoll_wait(RTE_EPOLL_PER_THREAD, &event, 1, milliseconds);
}

uint16_t karoo_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
    return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t karoo_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
    return rte_eth_tx_burst(port, queue, mbufs, count);
}
