use super::*;
use crate::perfetto::wire::Encode;

fn packet(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    out.message(1, fill);
    out
}

fn event(out: &mut Vec<u8>, time: u64, tid: u64, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    out.message(bundle::EVENT, |event| {
        event.varint(1, time);
        event.varint(2, tid);
        event.message(field, fill);
    });
}

fn bundle(cpu: u64, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    packet(|p| {
        p.message(packet::FTRACE_EVENTS, |b| {
            b.varint(bundle::CPU, cpu);
            fill(b);
        });
    })
}

/// Events as text: time, CPU, thread, kind, numbers, text.
fn event_lines(out: &TraceContent) -> Vec<String> {
    let of = |next: &TraceItem| match next {
        TraceItem::DecodedEvent(s) => {
            let numbers: Vec<String> =
                (0..s.kind.numbers().len()).map(|i| s.number(i).map_or("-".into(), |n| n.to_string())).collect();
            format!("{} {} {} {} [{}] {}", s.time_ns, s.cpu, s.tid, s.kind.name(), numbers.join(" "), s.text)
        }
        TraceItem::Missed(cpu, m) => format!("{} {cpu} missed since {} {:?}", m.until, m.since, m.events),
    };
    out.events.iter().map(of).collect()
}

/// Disk 8:0 as a number of user space.
const SDA_USER_DEV: u64 = 8 << 8;

fn known(b: &mut Vec<u8>) {
    event(b, 100, 7, 119, |e| {
        e.varint(1, SDA_USER_DEV);
        e.varint(2, 64);
        e.varint(3, 8);
        e.bytes(4, b"WS");
    });
    event(b, 90, 7, 329, |e| {
        e.varint(1, 18);
        (3..9).for_each(|n| e.varint(2, n));
    });
}

#[test]
fn known_generic_and_described_events_are_read() {
    let bytes = [bundle(1, |b| {
        known(b);
        event(b, 110, 8, GENERIC_EVENT_FIELD, |e| {
            e.bytes(1, b"jbd2_start_commit");
            for (name, value) in [("dev", SDA_USER_DEV), ("transaction", 5)] {
                e.message(2, |f| {
                    f.bytes(1, name.as_bytes());
                    f.varint(5, value);
                });
            }
        });
        event(b, 120, 8, DESCRIBED_FIELD_MIN + 3, |e| {
            e.varint(9, SDA_USER_DEV);
            e.varint(2, 5);
        });
        event(b, 121, 8, 700, |_| {});
        event(b, 122, 8, DESCRIBED_FIELD_MIN + 4, |_| {});
        b.message(bundle::GENERIC, |g| {
            g.varint(1, (DESCRIBED_FIELD_MIN + 3).into());
            g.message(2, |d| {
                d.bytes(1, b"jbd2_end_commit");
                for (name, number) in [("transaction", 2), ("dev", 9)] {
                    d.message(2, |f| {
                        f.bytes(1, name.as_bytes());
                        f.varint(3, number);
                    });
                }
            });
        });
    })]
    .concat();
    let out = read(&bytes).unwrap();
    assert_eq!(
        event_lines(&out),
        [
            "90 1 7 sys_enter [18 3] ",
            "100 1 7 block_bio_queue [8388608 64 8] WS",
            "110 1 8 jbd2_start_commit [8388608 5] ",
            "120 1 8 jbd2_end_commit [8388608 5] ",
        ]
    );
    assert_eq!(out.left_out.values().sum::<u64>(), 2);
    assert!(matches!(&out.events[0], TraceItem::DecodedEvent(s) if (1..7).all(|n| s.number(n) == Some(n as u64 + 2))));
}

fn packed(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|n| out.varint(1, *n));
    // A packed list is the numbers without their tags.
    let mut list = Vec::new();
    for (_, value) in Fields::new(&out) {
        let mut one = Vec::new();
        one.varint(1, value.number());
        list.extend(&one[1..]);
    }
    list
}

#[test]
fn compact_switches_name_the_previous_thread() {
    let bytes = bundle(0, |b| {
        b.message(bundle::COMPACT_SCHED, |c| {
            c.bytes(5, b"app");
            c.bytes(5, b"swapper/0");
            c.bytes(1, &packed(&[1000, 50, 50]));
            c.bytes(2, &packed(&[1, 0, 2]));
            c.bytes(3, &packed(&[7, 0, 7]));
            c.bytes(6, &packed(&[0, 1, 0]));
            c.bytes(7, &packed(&[1040]));
            c.bytes(8, &packed(&[9]));
            c.bytes(11, &packed(&[5]));
        });
    });
    let out = read(&bytes).unwrap();
    assert_eq!(
        event_lines(&out),
        [
            "1000 0 0 sched_switch [0 1 7] app",
            "1040 0 7 sched_waking [9] ",
            "1050 0 7 sched_switch [7 0 0] swapper/0",
            "1100 0 0 sched_switch [0 2 7] app",
        ]
    );
    assert_eq!(out.names[&7], "app");
    let uneven = bundle(0, |b| b.message(bundle::COMPACT_SCHED, |c| c.bytes(1, &packed(&[1, 2]))));
    assert_eq!(read(&uneven).unwrap().damaged, 1);
}

#[test]
fn compressed_packets_are_decompressed() {
    let plain = [bundle(1, known), bundle(0, known)].concat();
    let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&plain, 6);
    let zstd = zstd::bulk::compress(&plain, 1).unwrap();
    let expected = event_lines(&read(&plain).unwrap());
    assert_eq!(expected.len(), 4);
    for (field, data) in [(packet::COMPRESSED, &zlib), (packet::ZSTD, &zstd)] {
        let bytes = packet(|p| p.bytes(field, data));
        assert!(is(&bytes));
        assert_eq!(event_lines(&read(&bytes).unwrap()), expected);
        let cut = packet(|p| p.bytes(field, &data[..data.len() / 2]));
        let both = [cut, bundle(1, known)].concat();
        assert_eq!(read(&both).unwrap().damaged, 1, "{field}");
        let nested = packet(|p| p.bytes(field, &bytes));
        assert!(read(&nested).is_err(), "packets of packets of packets are not opened");
    }
    let mut gzip = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0".to_vec();
    gzip.extend(miniz_oxide::deflate::compress_to_vec(&plain, 6));
    gzip.extend([0; 8]);
    assert!(is_gzip(&gzip));
    assert_eq!(gunzip(&gzip).unwrap(), plain);
    for cut in 0..gzip.len() - 8 {
        assert!(gunzip(&gzip[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn losses_are_gaps() {
    let lossy = |lost: bool, at: u64| {
        bundle(1, |b| {
            event(b, at, 7, 330, |e| e.varint(1, 1));
            b.varint(bundle::LOST, lost.into());
        })
    };
    let stats = packet(|p| {
        p.message(packet::FTRACE_STATS, |s| {
            s.varint(1, 2);
            s.message(2, |c| {
                c.varint(1, 3);
                c.varint(3, 40);
                c.varint(8, 2);
            });
        });
    });
    let out = read(&[lossy(false, 10), lossy(true, 30), stats].concat()).unwrap();
    assert_eq!(event_lines(&out)[1], "30 1 missed since 10 None");
    assert_eq!(out.lost, [(3, 42)].into());
}

#[test]
fn the_first_packet_of_a_sequence_has_lost_nothing() {
    let of = |sequence: u64, at: u64| {
        packet(|p| {
            p.varint(packet::SEQUENCE_ID, sequence);
            p.varint(packet::PREVIOUS_PACKET_DROPPED, 1);
            p.message(packet::FTRACE_EVENTS, |b| {
                b.varint(bundle::CPU, sequence);
                event(b, at, 7, 330, |e| e.varint(1, 1));
            });
        })
    };
    let gaps = |bytes: &[u8]| event_lines(&read(bytes).unwrap()).iter().filter(|line| line.contains("missed")).count();
    assert_eq!(gaps(&[of(1, 10), of(2, 20)].concat()), 0);
    assert_eq!(gaps(&[of(1, 10), of(2, 20), of(1, 30)].concat()), 1);
}

#[test]
fn machine_processes_and_clock_are_read() {
    let bytes = [
        packet(|p| {
            p.message(packet::SYSTEM_INFO, |s| {
                s.message(1, |u| {
                    u.bytes(3, b"5.10.43-android12");
                    u.bytes(4, b"aarch64");
                });
            });
        }),
        packet(|p| {
            p.message(packet::PROCESS_TREE, |t| {
                for (pid, parent, name) in [(7_u64, 1_u64, "/system/bin/app"), (44, 2, "kworker/0:1H")] {
                    t.message(1, |process| {
                        process.varint(1, pid);
                        process.varint(2, parent);
                        process.bytes(3, name.as_bytes());
                    });
                }
                t.message(2, |thread| {
                    thread.varint(1, 9);
                    thread.varint(3, 7);
                    thread.bytes(2, b"worker");
                });
            });
        }),
        bundle(1, |b| {
            known(b);
            b.varint(bundle::CLOCK, 2);
            b.varint(bundle::FTRACE_TIME, 500);
            b.varint(bundle::BOOT_TIME, 1500);
        }),
    ]
    .concat();
    let out = read(&bytes).unwrap();
    assert_eq!((out.machine, out.release.as_deref()), (Some(Machine::Generic), Some("5.10.43-android12")));
    assert_eq!(out.tasks, [(7, 7), (44, 0), (9, 7)].into());
    assert_eq!((out.names[&7].as_str(), out.names[&9].as_str()), ("app", "worker"));
    assert!(event_lines(&out)[0].starts_with("1090 1 7"), "the clock is not moved: {:?}", event_lines(&out));
}

#[test]
fn traces_without_kernel_events_are_refused() {
    let bytes = packet(|p| p.varint(8, 5));
    assert!(is(&bytes) && matches!(read(&bytes), Err(ReadError::Empty(why)) if why.contains("without ftrace events")));
    for bytes in [&b""[..], b"\x0a\x05abc", b"hello", b"\x0a\0"] {
        assert!(!is(bytes), "{bytes:?}");
    }
}

/// Of a file that ends in the middle of a packet, everything before it is kept.
#[test]
fn truncated_traces_keep_what_is_whole() {
    let whole = bundle(1, known);
    let bytes = [&whole[..], &whole[..whole.len() - 3]].concat();
    let out = read(&bytes).unwrap();
    assert_eq!((out.events.len(), out.damaged), (2, 1));
}
