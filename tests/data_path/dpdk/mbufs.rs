//! Mbufs, batches of them and their pools.

use dpdk::{DpdkError, pool_size};

use super::*;

#[test]
fn mbufs_grow_at_both_ends_and_return_on_drop() {
    let pool = pool("grow", 7, 256);
    assert_eq!(pool.available(), 7);
    let mut mbuf = packet(&pool, b"payload");
    mbuf.prepend(3).expect("headroom").copy_from_slice(b"hdr");
    assert_eq!(mbuf.data(), b"hdrpayload");
    assert_eq!((mbuf.pkt_len(), mbuf.nb_segs()), (10, 1));
    assert!(
        mbuf.prepend(1000).is_none(),
        "there are 128 bytes of headroom"
    );
    assert!(
        mbuf.append(250).is_none(),
        "256 bytes of data room, 7 taken"
    );
    mbuf.data_mut()[0] = b'H';

    mbuf.chain(packet(&pool, b", tail")).expect("two segments");
    assert_eq!((mbuf.pkt_len(), mbuf.nb_segs()), (16, 2));
    assert_eq!(
        mbuf.segments().collect::<Vec<_>>(),
        [&b"Hdrpayload"[..], b", tail"]
    );
    let mut flat = [0; 16];
    assert_eq!(mbuf.copy_to(&mut flat), 16);
    assert_eq!(&flat, b"Hdrpayload, tail");
    assert_eq!(pool.available(), 5);
    drop(mbuf);
    assert_eq!(pool.available(), 7);
}

#[test]
fn batches_take_what_fits_and_free_the_rest() {
    let pool = pool("batch", 15, 64);
    let mut batch = MbufBatch::<8>::new();
    assert!(pool.alloc_bulk(&mut batch, 6));
    assert!(!pool.alloc_bulk(&mut batch, 3), "room for two");
    assert!(batch.push(pool.alloc().expect("mbuf")).is_ok());
    assert!(batch.push(pool.alloc().expect("mbuf")).is_ok());
    let refused = batch.push(pool.alloc().expect("mbuf")).expect_err("full");
    assert_eq!((batch.len(), pool.available()), (8, 6));
    drop(refused);
    drop(batch.pop());
    assert_eq!(pool.available(), 8);
    let mut more = MbufBatch::<8>::new();
    assert!(pool.alloc_bulk(&mut more, 8));
    assert!(pool.alloc().is_none(), "the pool is empty");
    drop(batch);
    more.clear();
    assert_eq!(pool.available(), 15);
}

#[test]
fn pool_outlives_its_mbufs() {
    let pool = pool("outlived", 3, 64);
    let mbuf = packet(&pool, b"still here");
    drop(pool);
    assert_eq!(mbuf.data(), b"still here");
}

#[test]
fn duplicate_names_are_refused_with_the_call() {
    let _first = pool("twice", 3, 64);
    let config = _first.config();
    let error = MbufPool::new(Eal::for_tests(), "twice", config).expect_err("the name is taken");
    let text = error.to_string();
    assert!(
        text.contains("rte_pktmbuf_pool_create(twice") && text.contains("File exists"),
        "{text}"
    );
}

/// 150 GB.
#[test]
fn a_pool_beyond_dpdks_memory_is_refused_with_the_way_out() {
    let config = PoolConfig {
        mbufs: 1 << 24,
        cache: 0,
        data_room: 9000,
        socket: None,
    };
    let error = MbufPool::new(Eal::for_tests(), "too-large", config).unwrap_err();
    let text = error.to_string();
    for words in [
        "'too-large' of 16777216 mbufs takes 1",
        "DPDK has not left",
        "MiB of huge pages",
        "| sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

#[test]
fn small_pool_is_refused_with_the_number() {
    assert_eq!(pool_size(1024, 32), 1536);
    assert_eq!(pool_size(16, 32), 80);
    let small = pool("small", 300, 2048);
    let config = PortConfig {
        rx_pools: vec![small.clone(), small],
        rx_descriptors: 128,
        ..PortConfig::default()
    };
    let device = Device::vdev(Eal::for_tests(), "net_null7", "").expect("null device");
    let info = device.info().expect("info");
    assert_eq!(info.driver, "net_null");
    let error = device.start(&config).expect_err("384 needed");
    assert!(
        matches!(error, DpdkError::PoolTooSmall { needed: 384, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("give it 384"));
}
