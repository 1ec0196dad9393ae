use std::collections::BTreeMap;
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let tracer = std::env::args().nth(2).and_then(|t| t.parse().ok());
    let mut bad = 0;
    let events: Vec<_> = text.lines().filter_map(|l| match model::Event::parse(l) { Ok(mut e) => { if l.contains("ctx=4") {e.header.flags=1}; Some(e) }, Err(_) => { bad += 1; None } }).collect();
    let n = events.len();
    let rows = causal::text::link(causal::Config { tracer, ..Default::default() }, events);
    println!("{n} events, {bad} unread");
    let spans: BTreeMap<u64, _> = rows.spans.iter().map(|s| (s.id, s)).collect();
    let mut by: BTreeMap<String, f64> = BTreeMap::new();
    for c in &rows.causes { let s = spans[&c.command]; *by.entry(format!("{} {} via {} {} disk {}", s.kind, c.origin, c.via, c.confidence, model::Dev(s.disk.unwrap()))).or_default() += c.share; }
    for (k, v) in by { println!("{v:9.2} {k}"); }
    let shapes: BTreeMap<u64,_> = rows.shapes.iter().map(|s| (s.id, s)).collect();
    let mut ops: BTreeMap<u64, (u64,u64,BTreeMap<String,u64>, f64, f64)> = BTreeMap::new();
    let shape_of: BTreeMap<u64,u64> = rows.operations.iter().map(|o| (o.id,o.shape)).collect();
    for o in &rows.operations { let e = ops.entry(o.shape).or_default(); e.0 += 1; e.1 += o.end_ns.map_or(0,|x| x - o.start_ns); }
    for s in &rows.slices { *ops.get_mut(&shape_of[&s.operation]).unwrap().2.entry(format!("{} {}", s.layer, s.reason)).or_default() += s.end_ns - s.start_ns; }
    for c in &rows.causes { if let Some(o) = c.operation { let e = ops.get_mut(&shape_of[&o]).unwrap(); if spans[&c.command].kind == "flush" { e.4 += c.share } else { e.3 += c.share } } }
    for (k, (count, sum, layers, cmds, fl)) in ops { println!("\n{} {:?}: {count} ops, mean {} ns; commands {:.2} flushes {:.2}", shapes[&k].kind, shapes[&k].text, sum/count, cmds / count as f64, fl / count as f64); let t: u64 = layers.values().sum(); println!("  slices sum {t} vs {sum}"); for (l, ns) in layers { println!("  {:9} {l}", ns / count); } }
    std::fs::write("/tmp/causal-rows.txt", rows.to_text()).unwrap();
}
