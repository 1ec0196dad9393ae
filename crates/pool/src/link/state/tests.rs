use super::*;
use crate::frame::Reply;
use crate::link::STALL_TIMEOUT;
use crate::link::liveness::SILENCE_TIMEOUT;
use crate::setting::Hold;
use crate::shm::Extent;

type AnswerReceiver = oneshot::Receiver<Result<Bytes, Failure>>;

/// A link with a node, all of whose connections are open.
struct Trial {
    state: State,
    now: Instant,
}

fn welcome(boot: &str) -> Welcome {
    let (node, pool, boot) = ("n".into(), "p".into(), boot.into());
    Welcome {
        node,
        pool,
        place: None,
        epoch: 3,
        size_bytes: 1 << 20,
        granted: 8,
        boot,
        session: 1,
        served: false,
        reserved: false,
        empty: false,
        unflushed: false,
        loss: Loss::default(),
        sequence: 7,
        instance: "i".into(),
        store: "/dev/sdx".into(),
        disk: None,
        memory: false,
        files: None,
        durable: Some(true),
    }
}

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn node() -> NodeProperties {
    NodeProperties { address: ([192, 0, 2, 1], 7001).into(), place: 0, epoch: 3, timeout: TEST_TIMEOUT }
}

fn timeout_failure() -> Failure {
    Failure::Deadline(node().address, TEST_TIMEOUT, LastError::default())
}

impl Trial {
    fn new(connections: usize, setting: Setting) -> Self {
        let (pace, now) = (Pace::new(&Control::Fixed(setting), 1), Instant::now());
        let mut state = State::new(pace, node(), &welcome("boot"), connections);
        (0..connections).for_each(|nth| state.set_open(nth, now, false));
        Self { state, now }
    }

    fn natural(connections: usize) -> Self {
        Self::new(connections, Setting::with_hold(8, Hold::NATURAL_BATCH))
    }

    /// Adds a request; also returns which connection to wake.
    fn put(&mut self, operation: Operation) -> (AnswerReceiver, Option<usize>) {
        let (_, answer, woken) = self.put_at(operation, 0);
        (answer, woken)
    }

    fn put_at(&mut self, operation: Operation, offset: u64) -> (u64, AnswerReceiver, Option<usize>) {
        let (reply, answer) = oneshot::channel();
        let data = if operation == Operation::Write { vec![Bytes::from_static(b"abcd")] } else { Vec::new() };
        let (number, woken) = self.state.queue_request(request_for(operation, offset), data.into(), self.now, reply);
        self.state.check_invariants();
        (number, answer, woken)
    }

    /// The requester goes away.
    fn leave(&mut self, number: u64, operation: Operation, offset: u64, answer: AnswerReceiver) {
        self.state.abandon(number, &request_for(operation, offset));
        drop(answer);
        self.state.check_invariants();
    }

    /// What is sent over a connection, and which other one to wake.
    fn fill(&mut self, nth: usize) -> (Vec<Request>, Option<usize>) {
        let mut out = Outbox::default();
        let woken = self.state.fill(nth, self.now, &mut out);
        match frame::take(out.tail()).expect("a frame") {
            Some(Frame::Requests(head, requests)) => {
                assert_eq!(head.epoch, 3);
                (requests.into_iter().map(|(request, _)| request).collect(), woken)
            }
            Some(Frame::Replies(..) | Frame::Report(..)) => panic!("no request was sent"),
            None => (Vec::new(), woken),
        }
    }

    /// The node reports over a connection.
    fn report(&mut self, nth: usize, report: Report) {
        self.state.record_receive(nth, self.now, 1);
        let report = Report { received_bytes: u64::MAX, ..report };
        self.state.process_frame(nth, Frame::Report(FrameHeader::default(), report), self.now).expect("a report");
    }

    /// The node answers these requests over a connection.
    fn answer(&mut self, nth: usize, requests: &[Request]) -> Result<(), FrameError> {
        let reply = |request: &Request| {
            let data = Bytes::from_static(if request.operation == Operation::Read { b"wxyz" } else { b"" });
            let (length, checksum) = (data.len() as u32, if data.is_empty() { 0 } else { crc32c::crc32c(&data) });
            (Reply { status: Status::Done, placed: false, tag: request.tag, length, checksum }, data)
        };
        let frame = Frame::Replies(FrameHeader::default(), requests.iter().map(reply).collect());
        let processed = self.state.process_frame(nth, frame, self.now);
        self.state.check_invariants();
        processed
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.state.check_invariants();
        }
    }
}

#[test]
fn connections_share_the_window_of_a_node() {
    let mut trial = Trial::new(3, Setting::new(4, 1));
    let asked: Vec<AnswerReceiver> = (0..10).map(|_| trial.put(Operation::Read).0).collect();
    let (first, woken) = trial.fill(0);
    assert_eq!((first.len(), woken), (4, None), "the window is full, whoever else could write");
    assert_eq!((trial.fill(1).0.len(), trial.fill(2).0.len()), (0, 0));
    trial.answer(0, &first[..3]).expect("they were asked");
    // This connection has one outstanding request, the others none.
    let (none, woken) = trial.fill(0);
    assert_eq!((none.len(), woken), (0, Some(1)));
    assert_eq!(trial.fill(1).0.len(), 3);
    let counts = trial.state.counts();
    assert_eq!((counts.window, counts.under_way, counts.waiting, counts.connections), (4, 4, 3, 3));
    drop(asked);
}

#[test]
fn next_frame_goes_to_the_least_loaded_connection() {
    let mut trial = Trial::natural(2);
    let mut taken = Vec::new();
    let mut keep = Vec::new();
    for _ in 0..4 {
        let (asked, woken) = trial.put(Operation::Read);
        let nth = woken.expect("both can take one");
        assert_eq!(trial.fill(nth).0.len(), 1);
        // The frame is written.
        assert_eq!(trial.fill(nth).0.len(), 0);
        taken.push(nth);
        keep.push(asked);
    }
    assert_eq!(taken, [0, 1, 0, 1]);
}

#[test]
fn writing_or_closed_connection_does_not_block_others() {
    let mut trial = Trial::natural(2);
    let (_first, woken) = trial.put(Operation::Read);
    assert_eq!((woken, trial.fill(0).0.len()), (Some(0), 1));
    // Its frame is not written yet.
    let (_second, woken) = trial.put(Operation::Read);
    assert_eq!((woken, trial.fill(1).0.len()), (Some(1), 1));
    let (_third, woken) = trial.put(Operation::Read);
    assert_eq!(woken, None, "both are writing");
    assert_eq!(trial.fill(1).0.len(), 1, "whoever is done first takes it");

    let mut trial = Trial::natural(1);
    trial.state = State::new(Pace::new(&Control::Tuned, 1), node(), &welcome("boot"), 2);
    trial.state.set_open(0, trial.now, false);
    let (_asked, woken) = trial.put(Operation::Read);
    assert_eq!(woken, Some(0));
    assert_eq!(trial.fill(0), (vec![request_for(Operation::Read, 0)], None));
}

fn request_for(operation: Operation, offset: u64) -> Request {
    let length = if operation == Operation::Flush { 0 } else { 4 };
    Request { operation, durable: false, unchecked: false, extent_count: 0, tag: 0, length, offset }
}

#[test]
fn answer_on_another_connection_is_an_error() {
    let mut trial = Trial::natural(2);
    let (mut asked, _) = trial.put(Operation::Read);
    let (requests, _) = trial.fill(0);
    assert!(matches!(trial.answer(1, &requests), Err(FrameError::Invalid(_))));
    assert!(asked.try_recv().is_err(), "a failure was reported");
    trial.answer(0, &requests).expect("it was asked there");
    assert_eq!(asked.try_recv().expect("an answer"), Ok(Bytes::from_static(b"wxyz")));
    assert!(matches!(trial.answer(0, &requests), Err(FrameError::Invalid(_))), "twice");
}

#[test]
fn in_flight_requests_are_resent_before_queued_ones() {
    let mut trial = Trial::new(2, Setting::new(2, 1));
    let mut kept = Vec::new();
    for operation in [Operation::Write, Operation::Read, Operation::Trim] {
        kept.push(trial.put(operation).0);
        trial.now += Duration::from_millis(1);
        trial.fill(0);
        trial.fill(1);
    }
    trial.state.requeue_all(trial.now);
    assert_eq!(trial.put(Operation::Flush).1, None, "no connection is open");
    assert_eq!(trial.state.counts().under_way, 0);
    trial.state.set_open(0, trial.now, false);
    let operations: Vec<_> = trial.fill(0).0.into_iter().map(|request| request.operation).collect();
    assert_eq!(operations, [Operation::Write, Operation::Read]);
}

#[test]
fn flush_covers_writes_of_other_connections() {
    let lost = |covered_by: Option<Request>| {
        let mut trial = Trial::natural(2);
        let _write = trial.put(Operation::Write);
        let (write, _) = trial.fill(0);
        trial.answer(0, &write).expect("it was asked");
        assert!(!trial.state.all_flushed());
        if let Some(request) = covered_by {
            let _read = trial.put(Operation::Read);
            trial.fill(0);
            let data =
                if request.operation == Operation::Write { vec![Bytes::from_static(b"abcd")] } else { Vec::new() };
            let (reply, _answer) = oneshot::channel();
            trial.state.queue_request(request, data.into(), trial.now, reply);
            let (sent, _) = trial.fill(1);
            trial.answer(1, &sent).expect("it was asked");
        }
        assert_eq!(trial.state.all_flushed(), covered_by.is_some());
        trial.state.requeue_all(trial.now);
        trial.state.record_reopen(&welcome("another boot"), trial.now);
        trial.state.loss.causes.clone()
    };
    let durable = |operation| Some(Request { durable: true, ..request_for(operation, 0) });
    assert_eq!(lost(Some(request_for(Operation::Flush, 0))), []);
    assert_eq!(lost(durable(Operation::Write)), []);
    assert_eq!(lost(durable(Operation::Trim)), []);
    assert_eq!(lost(None), [LossCause::MachineRestarted], "what was answered is gone, and no failure was reported");
}

/// What an earlier coordinator wrote is known to be flushed when anything is, or when the node says so.
#[test]
fn inherited_writes_count_until_flushed() {
    let inherits = Welcome { unflushed: true, ..welcome("boot") };
    let mut trial = Trial::natural(1);
    trial.state = State::new(Pace::new(&Control::Tuned, 1), node(), &inherits, 1);
    assert!(!trial.state.all_flushed());
    trial.state.record_reopen(&inherits, trial.now);
    assert!(!trial.state.all_flushed());
    trial.state.record_reopen(&welcome("boot"), trial.now);
    assert!(trial.state.all_flushed());
}

#[test]
fn flush_returns_the_sequence_number_of_the_store() {
    let mut trial = Trial::natural(1);
    trial.state.record_reopen(&Welcome { sequence: (3 << 32) - 2, ..welcome("boot") }, trial.now);
    for (told, known) in
        [(u32::MAX - 1, (3 << 32) - 2), (u32::MAX, (3 << 32) - 1), (5, (3 << 32) + 5), (2, (3 << 32) + 5)]
    {
        let _flush = trial.put(Operation::Flush);
        let (sent, _) = trial.fill(0);
        let reply = Reply { status: Status::Done, placed: false, tag: sent[0].tag, length: 0, checksum: told };
        let frame = Frame::Replies(FrameHeader::default(), vec![(reply, Bytes::new())]);
        trial.state.process_frame(0, frame, trial.now).expect("it was asked");
        assert_eq!(trial.state.sequence().0, known);
    }
}

#[test]
fn failed_flush_is_remembered_whatever_the_node_says_later() {
    let mut trial = Trial::natural(1);
    let (mut flush, _) = trial.put(Operation::Flush);
    let (mut read, _) = trial.put(Operation::Read);
    let (sent, _) = trial.fill(0);
    let (mut waits, _) = trial.put(Operation::Write);
    let reply = |request: &Request| {
        let status = if request.operation == Operation::Flush { Status::Lost } else { Status::Done };
        let (data, length) = if status == Status::Done { (&b"wxyz"[..], 4) } else { (&b""[..], 0) };
        let reply = Reply { status, placed: false, tag: request.tag, length, checksum: crc32c::crc32c(data) };
        (reply, Bytes::from_static(data))
    };
    let frame = Frame::Replies(FrameHeader::default(), sent.iter().map(reply).collect());
    trial.state.process_frame(0, frame, trial.now).expect("it was asked");
    let failed = Failure::Node(node().address, Status::Lost, FaultOffset::default());
    assert_eq!(flush.try_recv().expect("an answer"), Err(failed));
    assert!(read.try_recv().expect("an answer").is_ok());
    assert_eq!(waits.try_recv().expect("an answer"), Err(Failure::Lost));
    // The node is asked once which ranges that concerns; until it answers, it is all of them.
    assert!(trial.state.take_loss_query() && !trial.state.take_loss_query());
    assert_eq!(trial.state.loss.ranges, [(0, 1 << 20)]);
    for (told, ranges) in [(vec![], (0, 1 << 20)), (vec![(8192, 4096)], (8192, 4096))] {
        let (causes, id, is_silent) = (vec![LossCause::FlushFailed], "1".into(), told.is_empty());
        let loss = if is_silent { Loss::default() } else { Loss { ranges: told, causes, id } };
        trial.state.requeue_all(trial.now);
        trial.state.record_reopen(&Welcome { loss, ..welcome("boot") }, trial.now);
        assert_eq!(trial.state.loss.ranges, [ranges]);
        assert!(trial.state.has_unrecorded_failure() == is_silent && !trial.state.all_flushed());
        let (mut refused, _) = trial.put(Operation::Write);
        assert_eq!(refused.try_recv().expect("at once"), Err(Failure::Lost));
    }
    // Another one, which the node has not recorded: what it shows is of the first until it is claimed again.
    trial.state.fail_flush();
    assert!(trial.state.has_unrecorded_failure() && !trial.state.take_loss_query());
    assert_eq!(trial.state.loss.ranges, [(8192, 4096)]);
}

/// The node may answer them as if nothing had happened.
#[test]
fn changes_in_flight_at_a_failed_flush_are_not_resent() {
    let mut trial = Trial::natural(1);
    let _first = trial.put(Operation::Flush);
    let later = [Operation::Flush, Operation::Write, Operation::Trim].map(|operation| trial.put(operation).0);
    let _read = trial.put(Operation::Read);
    let (sent, _) = trial.fill(0);
    assert_eq!(sent.len(), 5);
    let lost = Reply { status: Status::Lost, placed: false, tag: sent[0].tag, length: 0, checksum: 0 };
    let frame = Frame::Replies(FrameHeader::default(), vec![(lost, Bytes::new())]);
    trial.state.process_frame(0, frame, trial.now).expect("it was asked");
    trial.state.requeue_all(trial.now);
    for mut answer in later {
        assert_eq!(answer.try_recv().expect("an answer"), Err(Failure::Lost));
    }
    trial.state.record_reopen(&welcome("boot"), trial.now);
    trial.state.set_open(0, trial.now, false);
    assert_eq!(trial.fill(0).0.iter().map(|request| request.operation).collect::<Vec<_>>(), [Operation::Read]);
}

#[test]
fn active_connection_does_not_hide_a_silent_one() {
    let mut trial = Trial::natural(2);
    let _first = trial.put(Operation::Read);
    trial.fill(0);
    let _second = trial.put(Operation::Read);
    trial.fill(1);
    trial.now += SILENCE_TIMEOUT;
    trial.report(0, Report::default());
    assert_eq!(trial.state.liveness_error(1, trial.now), None);
    trial.now += Duration::from_secs(1);
    trial.report(0, Report::default());
    assert_eq!(
        (trial.state.liveness_error(0, trial.now), trial.state.liveness_error(1, trial.now)),
        (None, Some(LivenessError::Silence(SILENCE_TIMEOUT)))
    );
    // It may take any time for its answers, as long as it reports progress.
    let mut report = Report::default();
    for _ in 0..3 {
        trial.now += STALL_TIMEOUT;
        report.progress += 1;
        trial.report(0, report);
        assert_eq!(trial.state.liveness_error(0, trial.now), None);
    }
    trial.now += STALL_TIMEOUT + Duration::from_secs(1);
    trial.report(0, report);
    assert_eq!(trial.state.liveness_error(0, trial.now), Some(LivenessError::Stalled(STALL_TIMEOUT)));
}

/// The medium hangs: requests fail, at once from then on, until there is progress.
#[test]
fn stalled_medium_fails_requests_until_it_makes_progress() {
    let mut trial = Trial::natural(1);
    let (mut hangs, _) = trial.put(Operation::Flush);
    trial.fill(0);
    let stalled = Err(Failure::Stalled(node().address, STALL_TIMEOUT));
    trial.now += STALL_TIMEOUT + Duration::from_secs(1);
    trial.report(0, Report::default());
    assert!(hangs.try_recv().is_err() && trial.state.liveness_error(0, trial.now).is_some());
    trial.state.requeue_all(trial.now);
    assert_eq!(hangs.try_recv().expect("an answer"), stalled);
    // It still has the request, so it asks to wait.
    trial.state.record_wait(0, trial.now);
    let (mut refused, _) = trial.put(Operation::Read);
    assert_eq!(refused.try_recv().expect("at once"), stalled);
    trial.state.record_wait(1, trial.now);
    let (mut waits, _) = trial.put(Operation::Read);
    assert!(waits.try_recv().is_err());
}

/// A node that asks to wait is heard.
#[test]
fn requests_wait_for_a_node_that_asks_to_wait() {
    let mut trial = Trial::natural(1);
    let (mut asked, _) = trial.put(Operation::Write);
    trial.fill(0);
    trial.state.requeue_all(trial.now);
    for progress in 0..100 {
        trial.now += Duration::from_secs(10);
        trial.state.record_wait(progress, trial.now);
        assert!(asked.try_recv().is_err() && trial.state.next_expiry(trial.now) > Some(trial.now));
    }
    trial.now += TEST_TIMEOUT + Duration::from_secs(1);
    trial.state.expire(trial.now);
    assert_eq!(asked.try_recv().expect("an answer"), Err(timeout_failure()));
}

#[test]
fn read_is_sent_while_flushes_and_durable_writes_wait() {
    for hold in [Hold::Frames(1), Hold::Part(1), Hold::Batch(8)] {
        let mut trial = Trial::new(1, Setting::with_hold(8, hold));
        let _flush = trial.put(Operation::Flush);
        assert_eq!(trial.fill(0).0.len(), 1);
        let _trim = trial.put(Operation::Trim);
        assert_eq!(trial.fill(0).0.len(), 1, "{hold:?}");
        let _read = trial.put(Operation::Read);
        assert_eq!(trial.fill(0).0.len(), 1, "{hold:?}");
        // Reads are paced by reads.
        let _second = trial.put(Operation::Read);
        assert_eq!(trial.fill(0).0.len(), 0, "{hold:?}");
    }
}

#[test]
fn reads_overtake_writes_that_have_no_room() {
    let mut trial = Trial::natural(1);
    let large = |trial: &mut Trial, operation, offset| {
        let (reply, answer) = oneshot::channel();
        let request = Request { length: 1 << 20, ..request_for(operation, offset) };
        let data = if operation == Operation::Write { vec![Bytes::from(vec![1; 1 << 20])] } else { Vec::new() };
        trial.state.queue_request(request, data.into(), trial.now, reply);
        answer
    };
    trial.state.granted = 64;
    trial.state.free_tags = (0..64).rev().collect();
    trial.state.tags = (0..64).map(|_| None).collect();
    trial.state.pace = Pace::new(&Control::Fixed(Setting::with_hold(64, Hold::NATURAL_BATCH)), 1);
    let sent = |trial: &mut Trial| {
        let (mut out, before) = (Outbox::default(), trial.state.in_flight_count());
        while {
            let now = trial.state.in_flight_count();
            trial.state.fill(0, trial.now, &mut out);
            trial.state.in_flight_count() > now
        } {}
        trial.state.in_flight_count() - before
    };
    let _writes: Vec<AnswerReceiver> = (0..20).map(|nth| large(&mut trial, Operation::Write, nth << 20)).collect();
    assert_eq!(sent(&mut trial), 16, "more than 16 MiB are not sent");
    let _reads: Vec<AnswerReceiver> = (0..20).map(|nth| large(&mut trial, Operation::Read, nth << 20)).collect();
    assert_eq!(sent(&mut trial), 16, "reads have as much of their own");
    let kinds = trial.state.tags.iter().flatten().filter(|job| job.class() == WaitClass::Read).count();
    assert_eq!((kinds, trial.state.pending.len()), (16, 8));
}

/// While the node holds back writes, they take no part in the pace, and leave a part of the window to reads.
#[test]
fn held_back_writes_leave_window_to_reads() {
    let mut trial = Trial::new(1, Setting::with_hold(8, Hold::Frames(1)));
    trial.report(0, Report { writes_wait: true, ..Report::default() });
    let _writes: Vec<_> = (0..8).map(|nth| trial.put_at(Operation::Write, nth * 8)).collect();
    let mut sent = 0;
    for _ in 0..8 {
        sent += trial.fill(0).0.len();
    }
    assert_eq!(sent, 6);
    let _read = trial.put(Operation::Read);
    assert_eq!(trial.fill(0).0.iter().map(|request| request.operation).collect::<Vec<_>>(), [Operation::Read]);
    trial.report(0, Report::default());
    let _another = trial.put(Operation::Read);
    assert_eq!(trial.fill(0).0.len(), 0, "all count again");
}

#[test]
fn requests_fail_on_timeout_and_after_end() {
    let mut trial = Trial::natural(2);
    let (mut late, _) = trial.put(Operation::Read);
    trial.fill(0);
    trial.now += TEST_TIMEOUT + Duration::from_secs(1);
    trial.state.requeue_all(trial.now);
    assert_eq!(late.try_recv().expect("an answer"), Err(timeout_failure()));
    trial.state.record_reopen(&welcome("boot"), trial.now);
    let (mut later, _) = trial.put(Operation::Read);
    let ended = Failure::Ended("it is over".into());
    trial.state.end(ended.clone(), trial.now);
    assert_eq!(later.try_recv().expect("an answer"), Err(ended.clone()));
    let (mut last, woken) = trial.put(Operation::Read);
    assert_eq!((last.try_recv().expect("an answer"), woken), (Err(ended), None));
}

#[test]
fn requests_expire_when_the_node_was_heard_too_long_ago() {
    let mut trial = Trial::natural(1);
    let (mut asked, _) = trial.put(Operation::Read);
    trial.fill(0);
    trial.now += Duration::from_secs(1);
    trial.report(0, Report::default());
    let away = trial.now + TEST_TIMEOUT + Duration::from_millis(1);
    trial.now += Duration::from_secs(5);
    trial.state.requeue_all(trial.now);
    assert_eq!(trial.state.next_expiry(trial.now), Some(away));
    // Also where the check is late.
    assert_eq!(trial.state.next_expiry(away), Some(away));
    assert!(!trial.state.is_away(trial.now) && trial.state.is_away(away));
    trial.state.expire(away);
    assert_eq!(asked.try_recv().expect("an answer"), Err(timeout_failure()));
    assert_eq!(trial.state.next_expiry(away), None, "no one waits, and no one will");
}

#[test]
fn cancelled_requests_are_not_sent() {
    let mut trial = Trial::natural(1);
    let (number, write, _) = trial.put_at(Operation::Write, 0);
    trial.leave(number, Operation::Write, 0, write);
    let _read = trial.put(Operation::Read);
    assert_eq!(trial.fill(0).0, [request_for(Operation::Read, 0)]);
    // Requests that time out hold back no others either.
    let (number, write, _) = trial.put_at(Operation::Write, 0);
    trial.state.requeue_all(trial.now);
    trial.leave(number, Operation::Write, 0, write);
    trial.now += TEST_TIMEOUT + Duration::from_secs(1);
    trial.state.expire(trial.now);
    trial.state.record_reopen(&welcome("boot"), trial.now);
    trial.state.set_open(0, trial.now, false);
    let _again = trial.put(Operation::Read);
    assert_eq!(trial.fill(0).0.len(), 1);
}

#[test]
fn abandoned_write_holds_back_overlapping_requests() {
    for touching in [Operation::Read, Operation::Write, Operation::Trim, Operation::Map] {
        let mut trial = Trial::natural(2);
        let (number, write, _) = trial.put_at(Operation::Write, 8);
        let (left, _) = trial.fill(0);
        trial.leave(number, Operation::Write, 8, write);
        let _beside = [trial.put_at(Operation::Write, 4), trial.put_at(Operation::Write, 12)];
        let _flush = trial.put(Operation::Flush);
        assert_eq!(trial.fill(1).0.len(), 3, "they do not touch it");
        let _over = trial.put_at(touching, 11);
        assert_eq!(trial.fill(1).0.len(), 0);
        trial.answer(0, &left).expect("it was asked");
        assert_eq!(trial.fill(0).0.len(), 1);
    }
}

#[test]
fn abandoned_write_is_not_resent() {
    let mut trial = Trial::natural(2);
    let (number, write, _) = trial.put_at(Operation::Write, 0);
    trial.fill(0);
    trial.leave(number, Operation::Write, 0, write);
    trial.state.requeue_all(trial.now);
    trial.state.set_open(0, trial.now, false);
    let _again = trial.put(Operation::Write);
    assert_eq!(trial.fill(0).0, [request_for(Operation::Write, 0)]);
}

#[test]
fn lost_node_fails_requests_at_once_until_it_is_back() {
    let mut trial = Trial::natural(1);
    let (mut first, _) = trial.put(Operation::Read);
    trial.fill(0);
    trial.now += Duration::from_secs(11);
    trial.state.requeue_all(trial.now);
    assert!(first.try_recv().is_err() && !trial.state.is_away(trial.now), "it is waited for");
    trial.now += Duration::from_secs(18);
    let (mut waits, _) = trial.put(Operation::Flush);
    trial.state.expire(trial.now);
    assert!(first.try_recv().is_err() && waits.try_recv().is_err());
    // 30 s since it was heard, not since the connection was closed; queued requests have also waited long enough.
    trial.now += Duration::from_secs(2);
    trial.state.expire(trial.now);
    assert_eq!(first.try_recv().expect("an answer"), Err(timeout_failure()));
    assert_eq!(waits.try_recv().expect("an answer"), Err(timeout_failure()));
    trial.now += Duration::from_secs(60);
    let (mut refused, _) = trial.put(Operation::Write);
    assert_eq!(refused.try_recv().expect("at once"), Err(timeout_failure()));
    trial.state.record_reopen(&welcome("boot"), trial.now);
    assert!(!trial.state.is_away(trial.now));
    trial.state.set_open(0, trial.now, false);
    let (mut served, _) = trial.put(Operation::Read);
    let (requests, _) = trial.fill(0);
    trial.answer(0, &requests).expect("it was asked");
    assert_eq!(served.try_recv().expect("an answer"), Ok(Bytes::from_static(b"wxyz")));
}

/// A buffer size that no other test of this program uses.
const SHARED_READ_BYTES: u32 = 1_500_000;

/// Whether a new buffer can be allocated at this place of the shared memory.
fn is_free(at: u64) -> bool {
    let all: Vec<Buffer> = (0..20).map(|_| Buffer::new(SHARED_READ_BYTES as usize)).collect();
    all.iter().any(|buffer| nbd::buffer::shared_offset(buffer) == Some(at as usize))
}

/// A read whose reply goes into shared memory; also returns the place.
fn shared_read(trial: &mut Trial) -> (u64, AnswerReceiver, Request, u64) {
    let (reply, answer) = oneshot::channel();
    let request = Request { length: SHARED_READ_BYTES, ..request_for(Operation::Read, 0) };
    let (number, _) = trial.state.queue_request(request, Parts::new(), trial.now, reply);
    let mut out = Outbox::default();
    trial.state.fill(0, trial.now, &mut out);
    let Some(Frame::Requests(_, requests)) = frame::take(out.tail()).expect("a frame") else { panic!("nothing left") };
    let (request, places) = &requests[0];
    let places: Vec<Extent> = Extent::decode(places).collect();
    assert!(requests.len() == 1 && request.extent_count == 1 && places[0].length == SHARED_READ_BYTES, "{requests:?}");
    (number, answer, *request, places[0].offset)
}

#[test]
fn shared_memory_in_use_by_a_node_is_not_reused() {
    crate::shm::MemoryOffer::for_boot(&crate::shm::boot()).expect("memory can be had");
    let mut trial = Trial::natural(1);
    trial.state.set_open(0, trial.now, true);
    // The requester is gone, and the node has not answered.
    let (number, asked, request, at) = shared_read(&mut trial);
    trial.leave(number, Operation::Read, 0, asked);
    assert!(!is_free(at));
    let reply = Reply { status: Status::Done, placed: true, tag: request.tag, length: SHARED_READ_BYTES, checksum: 0 };
    let answer = Frame::Replies(FrameHeader::default(), vec![(reply, Bytes::new())]);
    trial.state.process_frame(0, answer, trial.now).expect("it was asked");
    assert!(is_free(at));
    // The connection is lost, and the requester is gone too: the node may use the memory until it has admitted us again.
    let (_, asked, _, at) = shared_read(&mut trial);
    drop(asked);
    trial.state.requeue_all(trial.now);
    assert!(!is_free(at));
    trial.state.record_reopen(&welcome("boot"), trial.now);
    assert!(is_free(at));
    // The requester waits: the request is resent over a connection without shared memory and answered as usual.
    trial.state.set_open(0, trial.now, true);
    let (_, mut asked, _, _) = shared_read(&mut trial);
    trial.state.requeue_all(trial.now);
    trial.state.record_reopen(&welcome("boot"), trial.now);
    trial.state.set_open(0, trial.now, false);
    let (requests, _) = trial.fill(0);
    assert_eq!((requests.len(), requests[0].extent_count), (1, 0));
    let data = Bytes::from(vec![7; SHARED_READ_BYTES as usize]);
    let (length, checksum) = (SHARED_READ_BYTES, crc32c::crc32c(&data));
    let reply = Reply { status: Status::Done, placed: false, tag: requests[0].tag, length, checksum };
    trial
        .state
        .process_frame(0, Frame::Replies(FrameHeader::default(), vec![(reply, data.clone())]), trial.now)
        .expect("asked");
    assert_eq!(asked.try_recv().expect("an answer"), Ok(data));
    // Nothing will ever report that the node is done.
    trial.state.set_open(0, trial.now, true);
    let (_, _asked, _, at) = shared_read(&mut trial);
    drop(trial);
    assert!(!is_free(at));
}

#[test]
fn small_writes_use_shared_memory_if_their_data_is_there() {
    crate::shm::MemoryOffer::for_boot(&crate::shm::boot()).expect("memory can be had");
    let mut trial = Trial::natural(1);
    trial.state.set_open(0, trial.now, true);
    let frame = |trial: &mut Trial, data: Bytes| {
        let (reply, _answer) = oneshot::channel();
        let request = Request { length: data.len() as u32, ..request_for(Operation::Write, 0) };
        trial.state.queue_request(request, vec![data].into(), trial.now, reply);
        let mut out = Outbox::default();
        trial.state.fill(0, trial.now, &mut out);
        let Some(Frame::Requests(_, requests)) = frame::take(out.tail()).expect("a frame") else { panic!("no frame") };
        let (request, carried) = requests[0].clone();
        let answer = Reply { status: Status::Done, placed: false, tag: request.tag, length: 0, checksum: 0 };
        let answer = Frame::Replies(FrameHeader::default(), vec![(answer, Bytes::new())]);
        trial.state.process_frame(0, answer, trial.now).expect("it was asked");
        (request.extent_count, carried)
    };
    let (places, sent) = frame(&mut trial, Buffer::copy_of(&[7; 4096]));
    let place = Extent::decode(&sent).next().expect("one place");
    assert_eq!((places, place.length), (1, 4096));
    assert!(place.offset < nbd::buffer::SHARED_MEMORY_BYTES as u64);
    let (places, carried) = frame(&mut trial, Buffer::copy_of(&[7; 512]));
    assert_eq!((places, &carried[..]), (0, &[7; 512][..]), "an entry would not pay");
    let (places, carried) = frame(&mut trial, Bytes::from(vec![7; 4096]));
    assert_eq!((places, &carried[..]), (0, &[7; 4096][..]), "they are elsewhere");
    // Large data is moved there, from however many parts.
    let memory = crate::shm::MappedMemory::map_offer(
        &crate::shm::MemoryOffer::for_boot(&crate::shm::boot()).expect("there is some"),
    );
    let (places, sent) = frame(&mut trial, Bytes::from((0..64_u32 << 10).map(|at| (at / 9) as u8).collect::<Vec<_>>()));
    let place = Extent::decode(&sent).next().expect("one place");
    assert_eq!((places, place.length), (1, 64 << 10));
    // SAFETY: nobody else uses it: the request is answered, and its buffer is not used again meanwhile.
    let bytes = unsafe { memory.as_ref().and_then(|memory| memory.bytes(place)) }.expect("it is within");
    assert!(bytes.iter().zip(0_u32..).all(|(byte, at)| *byte == (at / 9) as u8));
}

#[test]
fn answers_are_read_only_from_the_announced_memory() {
    let mut trial = Trial::natural(1);
    let (_asked, _) = trial.put(Operation::Read);
    let (requests, _) = trial.fill(0);
    let reply = Reply { status: Status::Done, placed: true, tag: requests[0].tag, length: 4, checksum: 0 };
    let answer = Frame::Replies(FrameHeader::default(), vec![(reply, Bytes::new())]);
    assert!(matches!(trial.state.process_frame(0, answer, trial.now), Err(FrameError::Invalid(_))));
}
