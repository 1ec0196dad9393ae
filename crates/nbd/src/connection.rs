//! One connection, from the handshake to its end.
//!
//! After the handshake a connection is one loop: take the available requests, answer those that can be answered at once,
//! pass the others to the store concurrently, and write all available replies together when there are no more requests. So
//! requests that arrive together are answered together, a lone one is answered at once, and no timer is involved.
//!
//! A client that does not read its replies, or has too many outstanding requests, is not read from until it has caught up:
//! the memory of a connection is bounded, and that of all connections together ([`crate::budget`]).

use crate::budget::{Budget, Share};
use crate::buffer::LARGE_BYTES;
use crate::export::{Error, Export, Exports, Extent};
use crate::handshake::{Agreement, CONTEXT_ID, Encryption, Handshake, Step, Violation};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::request::check_request;
use crate::tasks::Tasks;
use crate::wire::{self, REQUEST_BYTES, Request, command, flag};
use bytes::{Bytes, BytesMut};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The timeout of a client's handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of requests at the store.
const IN_FLIGHT_REQUESTS_MAX: usize = 1024;
/// The maximum data that these carry or request, together with unsent replies. One request may exceed it.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;
/// Replies of this size are sent before more requests are taken: the client is busy meanwhile, and the data is still in the
/// CPU's cache. While they cannot be sent, the client has enough to read.
const UNSENT_BYTES_MAX: usize = 512 << 10;
/// The maximum number of extents in a reply; a client requests the rest again. They take 1 MiB.
const EXTENTS_MAX: usize = 128 << 10;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The client violated the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("the TLS handshake failed: {}", reason(.0))]
    Encryption(io::Error),
    /// The connection broke, or the client closed it without the protocol's disconnect, while it was owed replies.
    #[error("{}", aborted(.source.as_ref(), *.requests, *.reply_bytes))]
    Aborted {
        /// Why the connection broke, if the client did not just close it.
        source: Option<io::Error>,
        /// Requests without a reply: each may or may not be carried out.
        requests: usize,
        /// Bytes of replies that were not sent.
        reply_bytes: usize,
    },
    /// The client took too long to negotiate.
    #[error("the client did not finish its handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Slow,
}

/// A client that does not trust a certificate may send an alert, or just disconnect.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the client disconnected; it may not trust this server's certificate".into(),
        _ => error.to_string(),
    }
}

fn aborted(source: Option<&io::Error>, requests: usize, reply_bytes: usize) -> String {
    let why =
        source.map_or("the client closed the connection".into(), |error| format!("the connection failed: {error}"));
    format!("{why}, with {requests} requests in flight and {reply_bytes} bytes of replies unsent")
}

#[derive(Clone, Default)]
pub enum Tls {
    /// No encryption.
    #[default]
    Off,
    /// Encrypt if the client requests it.
    #[cfg(feature = "tls")]
    Offered(tokio_rustls::TlsAcceptor),
    /// Require encryption.
    #[cfg(feature = "tls")]
    Required(tokio_rustls::TlsAcceptor),
}

impl Tls {
    fn encryption(&self) -> Encryption {
        match self {
            Self::Off => Encryption::Off,
            #[cfg(feature = "tls")]
            Self::Offered(_) => Encryption::Offered,
            #[cfg(feature = "tls")]
            Self::Required(_) => Encryption::Required,
        }
    }

    #[cfg(feature = "tls")]
    fn acceptor(&self) -> Option<&tokio_rustls::TlsAcceptor> {
        match self {
            Self::Off => None,
            Self::Offered(acceptor) | Self::Required(acceptor) => Some(acceptor),
        }
    }
}

/// Serves one connection until the client ends it. For TCP, set TCP_NODELAY: each write is complete.
///
/// # Errors
/// [`Failure`]. The store is as if the unanswered requests had or had not been carried out, each independently.
pub async fn serve<S, X>(stream: S, exports: &X, tls: &Tls) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    match handshake(stream, exports, tls).await? {
        Some(admitted) => admitted.serve().await,
        None => Ok(()),
    }
}

/// The first half of [`serve`], for callers that count clients: until it returns the peer is unknown, and has neither
/// presented a certificate nor selected an export. `None`: the client has disconnected.
pub async fn handshake<'e, S, X>(
    stream: S,
    exports: &'e X,
    tls: &Tls,
) -> Result<Option<AdmittedClient<'e, S, X::Export>>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    tokio::time::timeout(HANDSHAKE_TIMEOUT, admit_client(stream, exports, tls)).await.unwrap_or(Err(Failure::Slow))
}

async fn admit_client<'e, S, X>(
    mut stream: S,
    exports: &'e X,
    tls: &Tls,
) -> Result<Option<AdmittedClient<'e, S, X::Export>>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let mut out = BytesMut::new();
    let mut state = Handshake::new(tls.encryption(), &mut out);
    let mut input = BytesMut::new();
    match negotiate(&mut stream, &mut state, &mut input, &mut out, exports).await? {
        Next::End => Ok(None),
        Next::Begin(agreed) => Ok(Some(AdmittedClient { stream: Transport::Clear(stream), agreed, input })),
        #[cfg(feature = "tls")]
        Next::StartTls => {
            // STARTTLS is only accepted if there is an acceptor.
            let Some(acceptor) = tls.acceptor() else { return Ok(None) };
            let mut stream = acceptor.accept(stream).await.map_err(Failure::Encryption)?;
            state.encrypted();
            match negotiate(&mut stream, &mut state, &mut input, &mut out, exports).await? {
                Next::Begin(agreed) => {
                    Ok(Some(AdmittedClient { stream: Transport::Encrypted(Box::new(stream)), agreed, input }))
                }
                Next::End | Next::StartTls => Ok(None),
            }
        }
        #[cfg(not(feature = "tls"))]
        Next::StartTls => Ok(None),
    }
}

/// A client that has completed its handshake, and has presented the required certificate.
pub struct AdmittedClient<'e, S, E> {
    stream: Transport<S>,
    agreed: Agreement<'e, E>,
    input: BytesMut,
}

enum Transport<S> {
    Clear(S),
    #[cfg(feature = "tls")]
    Encrypted(Box<tokio_rustls::server::TlsStream<S>>),
}

impl<S, E> std::fmt::Debug for AdmittedClient<'_, S, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmittedClient").finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, E: Export> AdmittedClient<'_, S, E> {
    /// The second half of [`serve`].
    pub async fn serve(self) -> Result<(), Failure> {
        self.serve_within(&Budget::new(usize::MAX)).await
    }

    /// The same, with a common bound of memory for all connections with this budget.
    pub async fn serve_within(self, budget: &Budget) -> Result<(), Failure> {
        match self.stream {
            Transport::Clear(stream) => serve_requests(stream, self.agreed, self.input, budget.share()).await,
            #[cfg(feature = "tls")]
            Transport::Encrypted(stream) => serve_requests(*stream, self.agreed, self.input, budget.share()).await,
        }
    }
}

enum Next<'e, E> {
    End,
    StartTls,
    Begin(Agreement<'e, E>),
}

/// Runs the handshake, until its end or the start of encryption.
async fn negotiate<'e, S, X>(
    stream: &mut S,
    state: &mut Handshake,
    input: &mut BytesMut,
    out: &mut BytesMut,
    exports: &'e X,
) -> Result<Next<'e, X::Export>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    loop {
        let step = state.step(input, out, exports)?;
        if matches!(step, Step::Answered) {
            continue;
        }
        stream.write_all_buf(out).await?;
        stream.flush().await?;
        match step {
            Step::Begin(agreed) => return Ok(Next::Begin(agreed)),
            Step::StartTls => return Ok(Next::StartTls),
            Step::End => return Ok(Next::End),
            Step::More | Step::Answered => {}
        }
        if stream.read_buf(input).await? == 0 {
            return if input.is_empty() { Ok(Next::End) } else { Err(Violation::Truncated.into()) };
        }
    }
}

/// The result of a request from the store.
enum Answer {
    Data(Result<Vec<Bytes>, Error>),
    Done(Result<(), Error>),
    Extents(Result<Vec<Extent>, Error>),
}

/// Handles requests and replies, until the client ends the session.
async fn serve_requests<S, E>(
    mut stream: S,
    agreed: Agreement<'_, E>,
    input: BytesMut,
    share: Share,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
    E: Export,
{
    let export = agreed.export;
    let mut session = Session {
        agreed,
        input: Inbox::new(input.freeze()),
        outbox: Outbox::default(),
        refused: None,
        arriving_write: None,
        in_flight_bytes: 0,
        share,
        ending: false,
        closed: false,
    };
    let mut tasks = Tasks::new();
    let ended = poll_fn(|cx| {
        loop {
            while session.outbox.len() < UNSENT_BYTES_MAX
                && let Poll::Ready(done) = tasks.poll_next(cx)
            {
                let (request, answer): (Request, Answer) = done;
                assert!(session.in_flight_bytes >= request.data_bytes(), "a request ended twice");
                session.in_flight_bytes -= request.data_bytes();
                session.put_answer(&request, answer);
            }
            let mut handed_over = false;
            while session.has_room(tasks.len()) {
                match session.take_request()? {
                    ReadOutcome::Nothing => break,
                    ReadOutcome::Answered => {}
                    ReadOutcome::Task(request, payload) => {
                        tasks.push(execute_request(export, request, payload));
                        handed_over = true;
                    }
                }
            }
            // A task first runs when it is polled; many complete at once, and their replies are sent with the others.
            if handed_over {
                continue;
            }
            assert!(!tasks.is_empty() || session.in_flight_bytes == 0, "bytes of no request would be held for ever");
            let wrote = session.write(&mut stream, cx)?;
            if session.ending && tasks.is_empty() && session.outbox.is_empty() {
                return pin!(stream.shutdown()).poll(cx).map(|_| Ok(()));
            }
            let read = session.has_room(tasks.len()) && session.read(&mut stream, cx)?;
            if session.closed {
                let whole = session.input.is_empty() && session.refused.is_none() && session.arriving_write.is_none();
                return Poll::Ready(if whole { Ok(()) } else { Err(Violation::Truncated.into()) });
            }
            if !wrote && !read {
                return Poll::Pending;
            }
        }
    })
    .await;
    let (requests, reply_bytes) = (tasks.len(), session.outbox.len());
    let is_owed = requests > 0 || reply_bytes > 0;
    match ended {
        Ok(()) if is_owed => Err(Failure::Aborted { source: None, requests, reply_bytes }),
        Err(Failure::Connection(error)) if is_owed => {
            Err(Failure::Aborted { source: Some(error), requests, reply_bytes })
        }
        other => other,
    }
}

/// Runs a request on the store.
async fn execute_request<E: Export>(export: &E, request: Request, payload: Bytes) -> (Request, Answer) {
    let Request { offset, length, flags, .. } = request;
    let has = |flag| flags & flag != 0;
    let durable = has(flag::FUA);
    let answer = match request.command {
        command::READ => Answer::Data(export.read_parts(offset, length).await),
        command::WRITE => Answer::Done(export.write(offset, payload, durable).await),
        command::FLUSH => Answer::Done(export.flush().await),
        command::TRIM => Answer::Done(export.trim(offset, length, durable).await),
        command::CACHE => Answer::Done(export.cache(offset, length).await),
        command::BLOCK_STATUS => Answer::Extents(export.extents(offset, length).await),
        command::WRITE_ZEROES => {
            Answer::Done(export.write_zeroes(offset, length, durable, has(flag::NO_HOLE), has(flag::FAST_ZERO)).await)
        }
        _ => Answer::Done(Err(Error::Invalid)),
    };
    (request, answer)
}

/// The result of reading a request.
enum ReadOutcome {
    /// There is no complete request.
    Nothing,
    /// A request was answered, or will be without the store.
    Answered,
    /// A request for the store.
    Task(Request, Bytes),
}

/// A request that is refused after all of it has arrived. A client that is still sending its payload does not yet regard
/// the request as sent, and treats a reply as unexpected: libnbd closes the connection then.
struct RefusedRequest {
    request: Request,
    error: Error,
    /// Bytes of its payload still to be received. They are discarded as they arrive, since they may exceed the buffer limit.
    left_bytes: u64,
}

struct Session<'e, E> {
    agreed: Agreement<'e, E>,
    input: Inbox,
    outbox: Outbox,
    refused: Option<RefusedRequest>,
    /// A write whose payload is being received.
    arriving_write: Option<Request>,
    /// Data that the requests at the store carry or request.
    in_flight_bytes: usize,
    /// Of the memory of all connections.
    share: Share,
    /// The client has requested the end.
    ending: bool,
    /// The client has closed its side.
    closed: bool,
}

impl<E: Export> Session<'_, E> {
    fn has_room(&mut self, in_flight: usize) -> bool {
        // A write that is being received has its buffer.
        let arriving = self.arriving_write.map_or(0, |request| request.length as usize);
        let held = self.outbox.len() + self.in_flight_bytes;
        let may_hold_more = self.share.hold(held + arriving) || arriving > 0;
        let is_sent = self.outbox.len() < UNSENT_BYTES_MAX;
        !self.ending && is_sent && in_flight < IN_FLIGHT_REQUESTS_MAX && held < IN_FLIGHT_BYTES_MAX && may_hold_more
    }

    /// Takes the next request from the input.
    fn take_request(&mut self) -> Result<ReadOutcome, Violation> {
        if let Some(request) = self.arriving_write {
            let Some(payload) = self.input.take_payload() else { return Ok(ReadOutcome::Nothing) };
            self.arriving_write = None;
            return Ok(self.handle_payload(request, payload));
        }
        if let Some(mut refused) = self.refused.take() {
            let now = refused.left_bytes.min(self.input.front().len() as u64);
            self.input.skip(now as usize);
            refused.left_bytes -= now;
            if refused.left_bytes > 0 {
                self.refused = Some(refused);
                return Ok(ReadOutcome::Nothing);
            }
            self.put_answer(&refused.request, Answer::Done(Err(refused.error)));
            return Ok(ReadOutcome::Answered);
        }
        let Some(head) = self.input.front().first_chunk::<REQUEST_BYTES>() else { return Ok(ReadOutcome::Nothing) };
        let request = Request::parse(head).ok_or(Violation::Request)?;
        if request.command == command::DISCONNECT {
            self.input.skip(self.input.front().len());
            self.ending = true;
            return Ok(ReadOutcome::Answered);
        }
        let checked =
            check_request(&request, self.agreed.export.info(), self.agreed.structured, self.agreed.block_status);
        let payload = if request.has_payload() { request.length as usize } else { 0 };
        if let Err(error) = checked {
            self.input.skip(REQUEST_BYTES);
            self.refused = Some(RefusedRequest { request, error, left_bytes: payload as u64 });
            return Ok(ReadOutcome::Answered);
        }
        let arrived = self.input.front().len() - REQUEST_BYTES;
        if arrived < payload {
            if payload >= LARGE_BYTES {
                self.input.skip(REQUEST_BYTES);
                self.input.expect_payload(payload);
                self.arriving_write = Some(request);
            }
            return Ok(ReadOutcome::Nothing);
        }
        self.input.skip(REQUEST_BYTES);
        if request.command == command::READ && self.read_now(&request) {
            return Ok(ReadOutcome::Answered);
        }
        if payload > 0 {
            let durable = request.flags & flag::FUA != 0;
            if let Some(result) = self.agreed.export.write_now(request.offset, &self.input.front()[..payload], durable)
            {
                self.input.skip(payload);
                self.put_answer(&request, Answer::Done(result));
                return Ok(ReadOutcome::Answered);
            }
        }
        self.in_flight_bytes += request.data_bytes();
        Ok(ReadOutcome::Task(request, self.input.split(payload)))
    }

    /// Handles a complete large payload.
    fn handle_payload(&mut self, request: Request, payload: Bytes) -> ReadOutcome {
        let durable = request.flags & flag::FUA != 0;
        if let Some(result) = self.agreed.export.write_now(request.offset, &payload, durable) {
            self.put_answer(&request, Answer::Done(result));
            return ReadOutcome::Answered;
        }
        self.in_flight_bytes += request.data_bytes();
        ReadOutcome::Task(request, payload)
    }

    /// Answers a read at once if the store can: its data is written directly into the output.
    fn read_now(&mut self, request: &Request) -> bool {
        let tail = self.outbox.tail();
        let begin = tail.len();
        wire::put_read_header(tail, self.agreed.structured, request);
        let data = tail.len();
        let result = match self.agreed.export.read_now(request.offset, request.length, tail) {
            Some(Ok(())) if tail.len() == data + request.length as usize => return true,
            Some(Ok(())) => Err(Error::Io),
            Some(Err(error)) => Err(error),
            None => {
                tail.truncate(begin);
                return false;
            }
        };
        tail.truncate(begin);
        wire::put_outcome(tail, self.agreed.structured, request, result);
        true
    }

    fn put_answer(&mut self, request: &Request, answer: Answer) {
        let structured = self.agreed.structured;
        let result = match answer {
            Answer::Data(Ok(parts)) if parts.iter().map(Bytes::len).sum::<usize>() == request.length as usize => {
                wire::put_read_header(self.outbox.tail(), structured, request);
                return parts.into_iter().for_each(|part| self.outbox.put(part));
            }
            Answer::Extents(Ok(extents)) => match normalise_extents(extents, request) {
                Some(extents) => return wire::put_block_status(self.outbox.tail(), request, CONTEXT_ID, &extents),
                None => Err(Error::Io),
            },
            Answer::Data(Ok(_)) => Err(Error::Io),
            Answer::Data(Err(error)) | Answer::Extents(Err(error)) => Err(error),
            Answer::Done(result) => result,
        };
        wire::put_outcome(self.outbox.tail(), structured, request, result);
    }

    /// Writes pending output; returns whether anything was written.
    fn write<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let mut any = false;
        while !self.outbox.is_empty() {
            match self.outbox.poll_write(stream, cx) {
                Poll::Pending => return Ok(any),
                Poll::Ready(Ok(_)) => any = true,
                Poll::Ready(Err(e)) => return Err(e.into()),
            }
        }
        // An encrypted stream holds back partial records.
        match pin!(stream.flush()).poll(cx) {
            Poll::Ready(Err(e)) => Err(e.into()),
            _ => Ok(any),
        }
    }

    /// Reads available input; returns whether there was any.
    fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Result<bool, Failure> {
        match self.input.poll_read(stream, cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(count)) => {
                self.closed = count == 0;
                Ok(true)
            }
            Poll::Ready(Err(e)) => Err(e.into()),
        }
    }
}

/// Normalises extents for sending: none is empty, they end with the request, and there is only one if only one was requested.
fn normalise_extents(extents: Vec<Extent>, request: &Request) -> Option<Vec<Extent>> {
    let one = request.flags & flag::REQ_ONE != 0;
    let mut left = request.length;
    let mut kept = Vec::new();
    for extent in extents.into_iter().take(if one { 1 } else { EXTENTS_MAX }) {
        let length = extent.length.min(left);
        if length == 0 {
            break;
        }
        left -= length;
        kept.push(Extent { length, ..extent });
    }
    (!kept.is_empty()).then_some(kept)
}
