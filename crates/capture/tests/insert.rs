//! INSERTs by the sqlite3 shell, from the statement to the disk's command.

mod common;

use capture::{Request, Scope, sqlite};
use model::BioEnd;
use std::path::Path;

#[test]
fn one_insert() {
    needs_live_kernel!();
    let disk = common::LoopDisk::ext4();
    let db = disk.path().join("t.db");
    let script = format!(
        "exec sqlite3 {} 'create table t(a integer, b text); insert into t values (1, \"x\"); \
         insert into t values (2, \"y\"); select * from t;'",
        db.display()
    );
    let child = common::gated(&script);
    let library = ["/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", "/usr/lib/aarch64-linux-gnu/libsqlite3.so.0"]
        .into_iter()
        .map(Path::new)
        .find(|p| p.exists())
        .expect("libsqlite3");
    let symbols = sqlite::find(library).unwrap();
    let mut recorder = common::Recorder::start(&Request::new(Scope::Command));
    assert!(recorder.session.attach_sqlite(library, &symbols));
    recorder.release(child);
    recorder.until_quiet(&disk);
    let (events, finished) = recorder.finish();
    for row in &finished.coverage {
        println!("{row:?}");
    }
    for event in &events {
        println!("{}", event.to_text());
    }
    let _ = BioEnd::Ext4;
    println!("{} {} {}", finished.records, finished.lost, finished.cpu_ns);
}
