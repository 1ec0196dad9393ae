use super::*;
use proptest::prelude::*;

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

fn layout(big_endian: bool) -> Layout {
    Layout::parse(HEADER_PAGE, 4096, big_endian).unwrap()
}

/// Writes pages as the kernel does (`rb_update_event`).
struct Writer {
    big: bool,
    data: Vec<u8>,
    now: u64,
}

impl Writer {
    fn word(&mut self, n: u32) {
        self.data.extend(if self.big { n.to_be_bytes() } else { n.to_le_bytes() });
    }

    fn header(&mut self, kind: u32, delta: u32) {
        self.word(if self.big { kind << 27 | delta } else { delta << 5 | kind });
    }

    fn event(&mut self, time: u64, data: &[u8], absolute: bool) {
        assert!(data.len().is_multiple_of(4));
        let delta = time - self.now;
        let mut rest = delta as u32;
        if absolute {
            self.header(TIME_STAMP_TYPE, (time & 0x07ff_ffff) as u32);
            self.word((time >> 27) as u32);
            rest = 0;
        } else if delta >> 27 != 0 {
            self.header(TIME_EXTEND_TYPE, (delta & 0x07ff_ffff) as u32);
            self.word((delta >> 27) as u32);
            rest = 0;
        }
        if data.len() <= 112 && !data.is_empty() {
            self.header(data.len() as u32 / 4, rest);
        } else {
            self.header(0, rest);
            self.word(data.len() as u32 + 4);
        }
        self.data.extend(data);
        self.now = time;
    }

    fn page(self, start: u64, flags: u64, missed: u64) -> Vec<u8> {
        let number = |n: u64| if self.big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut page = number(start).to_vec();
        page.extend(number(self.data.len() as u64 | flags));
        page.extend(&self.data);
        if flags & MISSED_STORED_BIT != 0 {
            page.extend(number(missed));
        }
        assert!(page.len() <= 4096);
        page.resize(4096, 0);
        page
    }
}

fn events(bytes: &[u8], big: bool) -> (Vec<(u64, Vec<u8>)>, u64) {
    let mut pages = Pages::new(layout(big), bytes);
    let all = pages
        .by_ref()
        .filter_map(|item| match item {
            Item::Record(r) => Some((r.time, r.data.to_vec())),
            Item::Missed(_) => None,
        })
        .collect();
    (all, pages.damaged())
}

proptest! {
    /// Round trip of short and long events, small and large time deltas, and both byte orders.
    #[test]
    fn ring_buffer_pages_round_trip(
        big: bool,
        start in 0u64..1 << 58,
        list in prop::collection::vec((prop_oneof![0u64..1000, 1u64 << 26..1 << 40], 0usize..60, any::<bool>()), 1..12),
    ) {
        let mut writer = Writer { big, data: Vec::new(), now: start };
        let mut expected = Vec::new();
        for (i, (step, words, absolute)) in list.into_iter().enumerate() {
            let time = writer.now + step;
            let data = vec![i as u8 + 1; words * 4];
            // The kernel keeps absolute times of 59 bits.
            writer.event(time, &data, absolute && time < 1 << 59);
            expected.push((time, data));
        }
        prop_assert_eq!(events(&writer.page(start, 0, 0), big), (expected, 0));
    }

    /// Arbitrary bytes neither panic nor loop nor yield more events than fit.
    #[test]
    fn arbitrary_pages_terminate(bytes in prop::collection::vec(any::<u8>(), 0..9000), size in 1usize..9000, big: bool) {
        let layout = Layout { page_size: size, ..layout(big) };
        let found = Pages::new(layout, &bytes).count();
        prop_assert!(found <= bytes.len() + 2);
    }
}

#[test]
fn a_gap_is_reported_before_the_next_event() {
    let page = |start: u64, flags: u64, missed: u64| {
        let mut writer = Writer { big: false, data: Vec::new(), now: start };
        writer.event(start + 5, &[7; 4], false);
        writer.page(start, flags, missed)
    };
    let bytes =
        [page(100, 0, 0), page(200, MISSED_EVENTS_BIT | MISSED_STORED_BIT, 42), page(300, MISSED_EVENTS_BIT, 0)]
            .concat();
    let gaps: Vec<MissedEvents> = Pages::new(layout(false), &bytes)
        .filter_map(|item| if let Item::Missed(m) = item { Some(m) } else { None })
        .collect();
    let first = MissedEvents { since: 105, until: 200, events: Some(42) };
    assert_eq!(gaps, [first, MissedEvents { since: 205, until: 300, events: None }]);
}

#[test]
fn absolute_time_keeps_upper_bits() {
    let start = 3 << 59 | 500;
    let mut writer = Writer { big: false, data: Vec::new(), now: start };
    writer.header(TIME_STAMP_TYPE, 700);
    writer.word(0);
    writer.header(1, 0);
    writer.word(9);
    assert_eq!(events(&writer.page(start, 0, 0), false).0[0].0, 3 << 59 | 700);
}

#[test]
fn padding_is_skipped_and_a_truncated_page_is_damaged() {
    let mut writer = Writer { big: false, data: Vec::new(), now: 10 };
    writer.header(PADDING_TYPE, 3);
    writer.word(12);
    writer.data.extend([0; 8]);
    writer.event(writer.now + 4, &[5; 8], false);
    writer.header(PADDING_TYPE, 0);
    writer.data.extend([0xff; 100]);
    let page = writer.page(10, 0, 0);
    assert_eq!(events(&page, false), (vec![(17, vec![5; 8])], 0));
    assert_eq!(events(&page[..40], false).1, 1, "the page's length says that there was more");
}

#[test]
fn invalid_page_header_is_refused() {
    assert_eq!(Layout::parse("", 4096, false), None);
    assert_eq!(Layout::parse(HEADER_PAGE, 16, false), None);
}
