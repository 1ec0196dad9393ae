//! Events of a text of ftrace.

use formats::ftrace::calls::Machine;
use formats::ftrace::translate::TraceContext;
use formats::ftrace::{run, text};
use model::Event;

/// Reads a text of which every line must be used.
pub fn events(trace: &str, machine: Machine) -> Vec<Event> {
    let trace = text::read(trace.as_bytes()).unwrap();
    assert!(trace.left_out.is_empty() && trace.unread.is_empty(), "{:?} {:?}", trace.left_out, trace.unread);
    let mut all = Vec::new();
    run::translate_content(&trace, &TraceContext::for_machine(machine), &mut |event| all.push(event.clone()));
    all
}
