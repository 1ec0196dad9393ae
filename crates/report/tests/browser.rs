mod support { pub mod synthetic; }
#[test]
fn dump() {
    let [timeline, scatter, counts, summary] = support::synthetic::Synthetic::figures(1000);
    let page = report::page(&report::PageData { title: "1,000 INSERTs and 100 scans", timeline, scatter, counts, summary });
    std::fs::write("/tmp/fathom/page.html", page).unwrap();
}
