//! Sleeps and the stacks that follow them, on this process's own code.

use super::raw::Registers;
use super::*;
use model::Record;
use model::event::Stack;

const REGISTERS: Registers = Registers { ip: 0, sp: 0x7ffc_0000_0400, fp: 0, lr: 0 };

fn asleep(thread: (u32, u32), from_ns: u64, comes: ProgramPart) -> Sleep {
    Sleep {
        thread,
        slept_ns: (from_ns, from_ns + 50),
        ctx: 1,
        program_part: comes,
        at: REGISTERS,
        kernel: vec![0xffff_ffff_8100_0110],
    }
}

fn call(thread: (u32, u32), time_ns: u64) -> CallStack {
    CallStack {
        thread,
        time_ns,
        at: REGISTERS,
        stubs: 0,
        returns: Vec::new(),
        from: REGISTERS.sp,
        is_cut: false,
        bytes: Vec::new(),
    }
}

impl Resolver {
    fn handle_all(&mut self, all: impl IntoIterator<Item = RingItem>, tell: &mut Vec<Event>) {
        all.into_iter().for_each(|raw| self.handle(raw, tell));
    }
}

fn naming() -> Resolver {
    let kallsyms = "ffffffff81000100 t schedule\nffffffff81000200 T other\n";
    Resolver { kernel: KernelNamesState::Read(KernelNames::parse(kallsyms.into())), ..Resolver::default() }
}

/// Returns for each reported sleep: when it began, and why its program's chain ended.
fn reported(events: &[Event]) -> Vec<(u64, u16)> {
    let ends: HashMap<u32, u16> = events
        .iter()
        .filter_map(|event| match &event.record {
            Record::Chain(chain) => Some((chain.chain, chain.ended)),
            _ => None,
        })
        .collect();
    let sleep = |event: &Event| match &event.record {
        Record::Stack(Stack { start_ns, program, .. }) => Some((*start_ns, ends[program])),
        _ => None,
    };
    events.iter().filter_map(sleep).collect()
}

#[test]
fn sleeps_of_one_call_share_its_stack() {
    let (mut naming, mut events) = (naming(), Vec::new());
    // No process has that number.
    let thread = (u32::MAX - 1, 5);
    let sleeps = [100, 200].map(|from_ns| RingItem::Asleep(asleep(thread, from_ns, ProgramPart::Later)));
    naming.handle_all(sleeps, &mut events);
    assert!(events.is_empty(), "the program's part is not there yet");
    naming.handle_all([RingItem::OfCall(call(thread, 300)), RingItem::OfCall(call(thread, 301))], &mut events);
    assert_eq!(reported(&events), [(100, chain_end::PROCESS_ENDED), (200, chain_end::PROCESS_ENDED)]);
    let kernel = events.iter().find_map(|event| match &event.record {
        Record::Chain(chain) if chain.ended == chain_end::WHOLE => Some(chain.text.clone()),
        _ => None,
    });
    assert_eq!(kernel.as_deref(), Some("schedule\t0x10\t[kernel]\t0x10\t"));
}

#[test]
fn sleep_without_program_says_why() {
    let (mut naming, mut events) = (naming(), Vec::new());
    let sleeps = [(1, ProgramPart::PageFault), (2, ProgramPart::Foreign), (3, ProgramPart::Later)];
    let batch = sleeps.map(|(tid, comes)| RingItem::Asleep(asleep((9, tid), 100, comes)));
    naming.handle_all(batch, &mut events);
    // Another process has the thread's number by now.
    naming.handle_all([RingItem::Asleep(asleep((10, 3), 200, ProgramPart::Later))], &mut events);
    naming.report_abandoned(u64::MAX, &mut events);
    let ends: Vec<u16> = reported(&events).into_iter().map(|(_, ended)| ended).collect();
    use chain_end::{NOT_64_BIT, NOT_TAKEN, PAGE_FAULT};
    assert_eq!(ends, [PAGE_FAULT, NOT_64_BIT, NOT_TAKEN, NOT_TAKEN]);
}

#[test]
fn old_sleeps_do_not_wait_for_ever() {
    let (mut naming, mut events) = (naming(), Vec::new());
    naming.handle_all([RingItem::Asleep(asleep((9, 1), 100, ProgramPart::Later))], &mut events);
    naming.handle_all([RingItem::Asleep(asleep((9, 2), 100 + 2 * WAIT_NS_MAX, ProgramPart::Later))], &mut events);
    assert_eq!(reported(&events), [(100, chain_end::NOT_TAKEN)]);
    assert_eq!(naming.waiting.len(), 1);
}

/// A fabricated stack of frame pointers through this process's code: only an address after a call is a function.
#[test]
fn garbage_on_stack_is_no_function() {
    let (mut naming, own) = (naming(), std::process::id());
    naming.programs.read_process(own);
    let here = garbage_on_stack_is_no_function as *const () as u64;
    // Each frame's caller is the first byte of a function, which is not a return address.
    let bytes: Vec<u8> = (0..256_u64)
        .map(|i| if i % 2 == 0 { REGISTERS.sp + 8 * (i + 2) } else { here })
        .flat_map(u64::to_le_bytes)
        .collect();
    let made_up =
        |ip, fp| CallStack { at: Registers { ip, fp, ..REGISTERS }, bytes: bytes.clone(), ..call((own, 1), 5) };
    for (ip, fp) in [
        (here, REGISTERS.sp),
        (here + 7, REGISTERS.sp),
        (0x10, REGISTERS.sp),
        (u64::MAX, u64::MAX),
        (here, u64::MAX - 8),
        (here, 0),
    ] {
        let (places, ended) = naming.programs.unwind(&made_up(ip, fp));
        assert!(places.len() <= 1 && ended == chain_end::NO_CALLER, "{ip:#x} {fp:#x}: {places:?} {ended}");
    }
}
