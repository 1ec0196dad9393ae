//! Tables in memory: what is found in a packed table is what was put there.

use model::packed::PackedTable;
use model::table::{Cause, Cell, Row, Span};
use model::{Confidence, Layer, Origin};

fn span(n: u64) -> Span {
    let some = |every: u64, value: u64| n.is_multiple_of(every).then_some(value);
    Span {
        id: n,
        layer: Layer::ALL[n as usize % Layer::ALL.len()],
        kind: if n.is_multiple_of(3) { "request".into() } else { format!("kind {}", n % 5).into() },
        start_ns: [n * 1000, u64::MAX - n, 0, 1 << 63][n as usize / 300 % 4],
        end_ns: some(3, n * 1000 + 77),
        tgid: u32::MAX,
        tid: n as u32,
        operation: some(256, n),
        file: (n / 128).is_multiple_of(2).then_some(u64::MAX),
        offset: Some(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        disk: None,
        sector: some(2, n.wrapping_mul(0x1234_5678_9abc_def1) >> 20),
        bytes: 4096,
        result: Some([-5, 4096, i64::MIN, i64::MAX][n as usize % 4]),
        number: some(7, n),
        cache_added: some(5, 0).map(|n| n as u32),
        flags: "".into(),
    }
}

#[test]
fn packed_rows_are_those_that_were_pushed() {
    for count in [0, 1, 127, 128, 129, 1500] {
        let rows: Vec<Span> = (0..count).map(span).collect();
        let table: PackedTable<Span> = rows.clone().into();
        assert_eq!(table.len() as u64, count);
        assert_eq!(table.iter().collect::<Vec<_>>(), rows);
        assert!((0..rows.len()).step_by(97).all(|at| table.iter().nth(at).as_ref() == Some(&rows[at])));
        assert_eq!(table.iter().rev().collect::<Vec<_>>(), rows.iter().rev().cloned().collect::<Vec<_>>());
        assert_eq!(table.last(), rows.last().cloned());
        assert_eq!(table.get(rows.len()), None);
        for (at, row) in rows.iter().enumerate() {
            assert_eq!((table.layer(at), table.start_ns(at), table.file(at)), (row.layer, row.start_ns, row.file));
            assert_eq!((table.kind(at), table.result(at)), (row.kind.clone(), row.result));
        }
        let mut cells = PackedTable::<Span>::default();
        for (column, _) in Span::TABLE.columns.iter().enumerate() {
            assert!(rows.iter().all(|row| cells.push_cell(column, &row.cells()[column])));
        }
        assert_eq!(cells.iter().collect::<Vec<_>>(), rows);
    }
}

#[test]
fn fractions_and_words_are_kept() {
    let cause = |n: u64| Cause {
        command: n,
        origin: Origin::ALL[n as usize % Origin::ALL.len()],
        operation: None,
        tgid: None,
        share: [1.0, 1.0 / 3.0, -0.0, f64::INFINITY][n as usize % 4],
        confidence: Confidence::ALL[n as usize % Confidence::ALL.len()],
        via: "page".into(),
    };
    let rows: Vec<Cause> = (0..300).map(cause).collect();
    assert_eq!(PackedTable::from(rows.clone()).iter().collect::<Vec<_>>(), rows);
}

#[test]
fn invalid_cells_are_reported() {
    let mut table = PackedTable::<Span>::default();
    let column = |name: &str| Span::TABLE.columns.iter().position(|column| column.name == name).unwrap();
    assert!(!table.push_cell(column("layer"), &Cell::Text("nowhere".into())));
    assert!(!table.push_cell(column("tgid"), &Cell::I64(-1)));
    assert!(!table.push_cell(column("start_ns"), &Cell::Empty));
    assert!(table.push_cell(column("end_ns"), &Cell::Empty));
    let mut invalid = |name: &str, number| table.push_numbers(column(name), [number].into_iter());
    assert_eq!([Some(-1), Some(1 << 32), None].map(|number| invalid("tgid", number)), [1, 1, 1]);
    assert_eq!([Some(-1), Some(i64::MAX), None].map(|number| invalid("result", number)), [0, 0, 0]);
    assert_eq!([Some(u32::MAX.into()), None].map(|number| invalid("disk", number)), [0, 0]);
}

#[test]
fn edited_rows_are_packed_again() {
    let mut table: PackedTable<Span> = (0..200).map(span).collect();
    table.edit().retain(|span| span.id % 2 == 1);
    table.edit()[7].bytes = 5;
    assert_eq!((table.len(), table.bytes(7), table.at(7).id), (100, 5, 15));
}

#[test]
fn spans_of_a_recording_take_an_eighth_of_the_struct() {
    // As syncs make them: times and addresses rise, the rest repeats.
    let recorded = |n: u64| Span {
        layer: Layer::ALL[n as usize % 4],
        kind: ["pwrite64", "write", "bio", "request"][n as usize % 4].into(),
        start_ns: 1_000_000_000_000 + n * 9_000,
        end_ns: Some(1_000_000_020_000 + n * 9_100),
        offset: Some(n * 4096),
        sector: Some(n * 8),
        result: Some(4096),
        tid: 40 + n as u32 % 4,
        operation: Some(n / 20),
        file: Some(1),
        number: Some(1),
        cache_added: None,
        ..span(n)
    };
    let table: PackedTable<Span> = (0..12_800).map(recorded).collect();
    let each = table.size_bytes() as f64 / table.len() as f64;
    assert!(each * 8.0 < size_of::<Span>() as f64, "{each} bytes a span");
}
