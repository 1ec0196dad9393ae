//! Tasks and files that existed before: ftrace reports neither a thread's process nor a descriptor's file.

use crate::tasks;
use formats::ftrace::calls::Machine;
use formats::ftrace::translate::{OpenDescriptor, TraceContext};
use model::Record;
use std::fs;

/// Returns the context with every task of `/proc`, by thread; `me` is the recorder.
pub fn read_context(me: u32) -> TraceContext {
    let machine = if cfg!(target_arch = "x86_64") { Machine::X86_64 } else { Machine::Generic };
    let mut context = TraceContext { tracer: Some(me), ..TraceContext::for_machine(machine) };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()) {
        let tgid = if tasks::is_kernel_thread(pid) { 0 } else { pid };
        for tid in tasks::threads(pid) {
            context.tasks.push((tid, tgid));
        }
        context.names.extend(tasks::comm_of(pid).map(|name| (pid, name)));
    }
    context
}

/// Returns the files that a process has open.
pub fn open_files(pid: u32) -> Vec<OpenDescriptor> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Some(fd) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Some(event) = tasks::describe_file(pid, fd as u32) else { continue };
        let Record::File(file) = event.record else { continue };
        let time_ns = event.header.time_ns;
        all.push(OpenDescriptor { time_ns, tgid: pid, fd, dev: file.dev, ino: file.ino, path: file.text });
    }
    all
}
