//! The order in which a drain passes on what was recorded, however late it comes.

mod common;

use capture::{Request, Scope};
use common::{LoopDisk, Recorder};
use model::Record;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

#[test]
fn open_files_are_named_before_their_calls() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    let path = disk.path().join("opened");
    let script = format!("exec 3>>{}; echo opened; read go; for i in 1 2 3; do echo $i >&3; done", path.display());
    let mut command = Command::new("sh");
    let mut child = command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut opened = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut opened).unwrap();
    assert_eq!(opened, "opened\n");

    let mut recorder = Recorder::start(&Request { stacks: false, ..Request::new(Scope::Command) });
    recorder.session.track(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    recorder.drain();

    let events = &recorder.events;
    let named = events.iter().position(|e| matches!(&e.record, Record::File(f) if f.text.ends_with("/opened")));
    let ino = fs::metadata(&path).unwrap().ino();
    let called = events.iter().position(|e| matches!(&e.record, Record::Syscall(call) if call.ino == ino));
    assert!(named.is_some() && called.is_some() && named < called, "named at {named:?}, called at {called:?}");
}
