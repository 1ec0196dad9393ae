//! Connections: plain, or encrypted and mutually authenticated.

use crate::key::Key;
use crate::pinned::CertificateMismatch;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// The timeout of authentication.
pub const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);
/// The response of an end without a key to TLS: a record with the fatal alert `unknown_psk_identity`, which is not used for
/// anything else here.
pub const KEYLESS_ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 115];
/// Bytes read at once: TLS reads 4 KiB at a time, each of which would be a system call.
const READ_BUFFER_BYTES: usize = 64 << 10;
/// The number of first bytes remembered, to identify the peer's protocol.
const FIRST_BYTES_MAX: usize = 8;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// It broke.
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    /// It was closed before both ends were authenticated.
    #[error("the peer closed the connection before it was authenticated")]
    Closed,
    /// No data arrived.
    #[error("the peer did not authenticate within {} s", AUTHENTICATION_TIMEOUT.as_secs())]
    Silent,
    /// The peer has another key.
    #[error("the peer's key ({theirs}) differs from this end's ({ours}); copy one key file to both")]
    AnotherKey {
        /// Its fingerprint.
        theirs: String,
        /// The fingerprint of this end.
        ours: String,
    },
    /// The peer does not accept our key.
    #[error(
        "the peer's key differs from this end's ({ours}), and it refused the connection; copy one key file to \
        both"
    )]
    NotAccepted {
        /// The fingerprint of this end.
        ours: String,
    },
    /// The peer encrypts, but presented no key.
    #[error("no key: the peer uses encryption but presented no key")]
    NoKey,
    /// The peer uses one of our protocols, without a key.
    #[error("no key: the peer was started without a key, and this end has one; give both the same key file")]
    Keyless,
    /// The peer requires a key, and we have none.
    #[error("no key: the peer has a key, and this end was started without a key; give --key FILE")]
    KeyWanted,
    /// The peer encrypts, with another kind of certificate.
    #[error("not a Fathom peer: its certificate was not made by Fathom")]
    Stranger,
    /// The peer uses an unknown protocol.
    #[error("unknown protocol: the peer's first bytes are {0}")]
    NotOurProtocol(String),
    /// The verification of keys or signatures failed.
    #[error("the TLS handshake with the peer failed: {0}")]
    Encryption(String),
}

/// A connection. Written data may be buffered until it is flushed.
#[derive(Debug)]
pub enum Stream<S> {
    Plain(S),
    Encrypted(Box<TlsStream<RememberingStream<S>>>),
}

impl<S: AsyncRead> Stream<S> {
    /// Whether it is encrypted, so that written data needs a flush.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }

    /// The stream underneath, for its addresses and options.
    pub fn inner(&self) -> &S {
        match self {
            Self::Plain(stream) => stream,
            Self::Encrypted(stream) => stream.get_ref().0.stream.get_ref(),
        }
    }
}

/// Connects as the client: with a key, encrypts and authenticates both ends; without one, changes nothing.
pub async fn connect<S>(key: Option<&Key>, stream: S) -> Result<Stream<S>, AuthenticationError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(key) = key else { return Ok(Stream::Plain(stream)) };
    // No name is sent or checked; the TLS library requires one.
    let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let handshake = TlsConnector::from(key.configs.client.clone()).connect(name, RememberingStream::new(stream));
    match tokio::time::timeout(AUTHENTICATION_TIMEOUT, handshake.into_fallible()).await {
        Ok(Ok(stream)) => Ok(Stream::Encrypted(Box::new(stream.into()))),
        Ok(Err((error, stream))) => Err(classify_failure(error, stream.first(), key)),
        Err(_) => Err(AuthenticationError::Silent),
    }
}

/// Accepts as the server; see [`connect`].
pub async fn accept<S>(key: Option<&Key>, stream: S) -> Result<Stream<S>, AuthenticationError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(key) = key else { return Ok(Stream::Plain(stream)) };
    let handshake = TlsAcceptor::from(key.configs.server.clone()).accept(RememberingStream::new(stream));
    match tokio::time::timeout(AUTHENTICATION_TIMEOUT, handshake.into_fallible()).await {
        Ok(Ok(stream)) => Ok(Stream::Encrypted(Box::new(stream.into()))),
        Ok(Err((error, stream))) => Err(classify_failure(error, stream.first(), key)),
        Err(_) => Err(AuthenticationError::Silent),
    }
}

/// Classifies unknown first bytes at an end without a key: [`AuthenticationError::KeyWanted`] if the other end begins or responds with
/// TLS, and then [`KEYLESS_ALERT`] is to be sent.
pub fn classify_stranger(first: &[u8]) -> AuthenticationError {
    match first {
        // A record of TLS: a hello, or an alert.
        [0x16 | 0x15, 3, ..] => AuthenticationError::KeyWanted,
        _ => AuthenticationError::NotOurProtocol(show_first_bytes(first)),
    }
}

fn show_first_bytes(first: &[u8]) -> String {
    let first = &first[..first.len().min(FIRST_BYTES_MAX)];
    if first.iter().all(|b| (0x20..0x7f).contains(b)) {
        return format!("{:?}", String::from_utf8_lossy(first));
    }
    let digits: Vec<String> = first.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("the bytes {}", digits.join(" "))
}

/// The reason of a failure, from the TLS error and the first bytes of the other end.
fn classify_failure(error: io::Error, first: &[u8], key: &Key) -> AuthenticationError {
    use AlertDescription as A;
    let ours = || key.fingerprint().to_string();
    let plain = match first {
        [] | [0x14..=0x17, ..] => None,
        // All protocols of this program begin with this.
        [b'F', b'A'..=b'Z', ..] => Some(AuthenticationError::Keyless),
        _ => Some(AuthenticationError::NotOurProtocol(show_first_bytes(first))),
    };
    let broken = error.kind() == io::ErrorKind::UnexpectedEof;
    let Some(reason) = error.get_ref().and_then(|e| e.downcast_ref::<Error>()) else {
        return match plain {
            Some(refused) => refused,
            None if broken => AuthenticationError::Closed,
            None => AuthenticationError::Connection(error),
        };
    };
    match reason {
        Error::InvalidCertificate(CertificateError::Other(why)) => match why.0.downcast_ref::<CertificateMismatch>() {
            Some(CertificateMismatch::AnotherKey(theirs)) => {
                AuthenticationError::AnotherKey { theirs: theirs.clone(), ours: ours() }
            }
            _ => AuthenticationError::Stranger,
        },
        Error::NoCertificatesPresented => AuthenticationError::NoKey,
        Error::AlertReceived(A::CertificateUnknown) => AuthenticationError::NotAccepted { ours: ours() },
        Error::AlertReceived(A::UnknownPSKIdentity) => AuthenticationError::Keyless,
        // A TLS peer without a common configuration is not a Fathom peer.
        Error::AlertReceived(_) | Error::PeerIncompatible(_) => AuthenticationError::Stranger,
        _ => plain.unwrap_or_else(|| AuthenticationError::Encryption(reason.to_string())),
    }
}

/// A stream that remembers the first bytes, and reads large blocks.
#[derive(Debug)]
pub struct RememberingStream<S> {
    stream: BufReader<S>,
    first: [u8; FIRST_BYTES_MAX],
    first_len: usize,
}

impl<S: AsyncRead> RememberingStream<S> {
    fn new(stream: S) -> Self {
        Self { stream: BufReader::with_capacity(READ_BUFFER_BYTES, stream), first: [0; FIRST_BYTES_MAX], first_len: 0 }
    }

    fn first(&self) -> &[u8] {
        &self.first[..self.first_len]
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RememberingStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if self.first_len < FIRST_BYTES_MAX {
            let came = &buf.filled()[before..];
            let (seen, now) = (self.first_len, came.len().min(FIRST_BYTES_MAX - self.first_len));
            self.first[seen..seen + now].copy_from_slice(&came[..now]);
            self.first_len += now;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for RememberingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    /// The end of an encrypted stream is accepted without TLS's close_notify, as after a process is killed: our messages
    /// contain their length, so a reader detects a truncated one.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Encrypted(stream) => match ready!(Pin::new(stream).poll_read(cx, buf)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                other => Poll::Ready(other),
            },
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Encrypted(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    fn key(seed: u8) -> Key {
        Key::from_seed([seed; 32]).expect("any seed is a key")
    }

    type Joined = Result<Stream<DuplexStream>, AuthenticationError>;

    /// Connects both ends, with these keys.
    async fn connect_both(caller: Option<&Key>, called: Option<&Key>) -> (Joined, Joined) {
        let (one, other) = duplex(1 << 16);
        tokio::join!(connect(caller, one), accept(called, other))
    }

    /// The result of an end with a key and its output, for a peer that sends `first` and then listens, or closes.
    async fn refuse_peer(first: &[u8], stays: bool) -> (String, Vec<u8>) {
        let (one, mut other) = duplex(1 << 16);
        let ours = key(1);
        other.write_all(first).await.expect("there is room");
        if !stays {
            other.shutdown().await.expect("nothing waits");
        }
        let refused = accept(Some(&ours), one).await.expect_err("it is no peer").to_string();
        let mut answer = vec![0; 64];
        let count = other.read(&mut answer).await.unwrap_or(0);
        answer.truncate(count);
        (refused, answer)
    }

    #[tokio::test]
    async fn ends_with_the_same_key_connect() {
        let (caller, called) = connect_both(Some(&key(1)), Some(&key(1))).await;
        let (mut caller, mut called) = (caller.expect("one key"), called.expect("one key"));
        assert!(caller.is_encrypted() && called.is_encrypted());
        let long = vec![7; 200_000];
        let sent = long.clone();
        let talk = async move {
            caller.write_all(&sent).await.expect("written");
            caller.flush().await.expect("flushed");
            let mut answer = [0; 4];
            caller.read_exact(&mut answer).await.expect("an answer");
            answer
        };
        let listen = async move {
            let mut came = vec![0; long.len()];
            called.read_exact(&mut came).await.expect("it comes");
            assert!(came == long);
            called.write_all(b"fine").await.expect("written");
            called.flush().await.expect("flushed");
            // It closes without close_notify, which reads as EOF.
            called
        };
        let (answer, called) = tokio::join!(talk, listen);
        assert_eq!(&answer, b"fine");
        drop(called);
    }

    #[tokio::test]
    async fn killed_peer_reads_as_eof() {
        let (caller, called) = connect_both(Some(&key(1)), Some(&key(1))).await;
        drop(caller.expect("one key"));
        let mut rest = Vec::new();
        let count = called.expect("one key").read_to_end(&mut rest).await.expect("an end");
        assert_eq!(count, 0);
    }

    #[tokio::test]
    async fn key_mismatch_is_reported_at_both_ends() {
        let (caller, called) = connect_both(Some(&key(1)), Some(&key(2))).await;
        let (caller, called) = (caller.expect_err("two keys"), called.expect_err("two keys"));
        let (one, two) = (key(1).fingerprint().to_string(), key(2).fingerprint().to_string());
        assert!(
            matches!(&caller, AuthenticationError::AnotherKey { theirs, ours } if *theirs == two && *ours == one),
            "{caller}"
        );
        assert!(matches!(&called, AuthenticationError::NotAccepted { ours } if *ours == two), "{called}");
    }

    /// A client that verifies nothing and presents another key is detected by the server.
    #[tokio::test]
    async fn client_that_does_not_verify_is_refused() {
        let forged = crate::pinned::tests_only_client_accepting(&[2; 32], &[1; 32]);
        let (one, other) = duplex(1 << 16);
        let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let caller = TlsConnector::from(forged).connect(name, one);
        let ours = key(1);
        let (_, called) = tokio::join!(caller, accept(Some(&ours), other));
        let called = called.expect_err("another key");
        assert!(
            matches!(&called, AuthenticationError::AnotherKey { theirs, .. } if theirs == key(2).fingerprint()),
            "{called}"
        );
    }

    #[tokio::test]
    async fn tls_client_without_a_key_has_its_own_error() {
        let bare = crate::pinned::tests_only_client_without_key(&[1; 32]);
        let (one, other) = duplex(1 << 16);
        let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let caller = TlsConnector::from(bare).connect(name, one);
        let ours = key(1);
        let (_, called) = tokio::join!(caller, accept(Some(&ours), other));
        assert!(matches!(called, Err(AuthenticationError::NoKey)), "{called:?}");
    }

    #[tokio::test]
    async fn missing_key_is_reported_at_both_ends() {
        // The end with the key is the server: it receives the protocol in clear text.
        let (refused, answer) = refuse_peer(b"FPH1\x20\0\0\0{}", true).await;
        assert!(refused.contains("started without a key"), "{refused}");
        assert!(matches!(classify_stranger(&answer), AuthenticationError::KeyWanted), "{answer:?}");
        // The end with the key is the client: it gets the alert.
        let (one, mut other) = duplex(1 << 16);
        let ours = key(1);
        let (called, ()) = tokio::join!(connect(Some(&ours), one), async {
            let mut first = [0; 8];
            other.read_exact(&mut first).await.expect("a greeting");
            assert!(matches!(classify_stranger(&first), AuthenticationError::KeyWanted), "{first:?}");
            other.write_all(&KEYLESS_ALERT).await.expect("there is room");
        });
        assert!(matches!(called, Err(AuthenticationError::Keyless)), "{called:?}");
    }

    #[tokio::test]
    async fn other_protocols_are_named_by_their_first_bytes() {
        let (refused, _) = refuse_peer(b"GET / HTTP/1.1\r\n\r\n", true).await;
        assert!(refused.starts_with("unknown protocol") && refused.contains("\"GET / HT\""), "{refused}");
        let (refused, _) = refuse_peer(&[0, 1, 2, 0xff, 4, 5], true).await;
        assert!(refused.contains("the bytes 00 01 02 ff 04 05"), "{refused}");
        assert!(classify_stranger(b"SSH-2.0-x").to_string().contains("\"SSH-2.0-\""));
        let (refused, _) = refuse_peer(b"", false).await;
        assert!(refused.contains("closed the connection"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_peer_times_out() {
        let (one, other) = duplex(64);
        let waited = tokio::time::Instant::now();
        assert!(matches!(accept(Some(&key(1)), one).await, Err(AuthenticationError::Silent)));
        assert_eq!(waited.elapsed(), AUTHENTICATION_TIMEOUT);
        drop(other);
    }

    #[tokio::test]
    async fn stream_without_keys_is_plain() {
        let (caller, called) = connect_both(None, None).await;
        let (mut caller, mut called) = (caller.expect("plain"), called.expect("plain"));
        caller.write_all(b"FPH1").await.expect("there is room");
        let mut came = [0; 4];
        called.read_exact(&mut came).await.expect("it comes");
        assert_eq!(&came, b"FPH1");
        assert!(!caller.is_encrypted());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        /// Arbitrary bytes sent to an end with a key neither authenticate nor panic.
        #[test]
        fn arbitrary_bytes_are_refused(bytes: Vec<u8>, tls: bool) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            runtime.block_on(async {
                let first = if tls { [&[0x16, 3, 1, 0, bytes.len() as u8], &bytes[..]].concat() } else { bytes.clone() };
                let (_, _) = refuse_peer(&first, false).await;
                classify_stranger(&bytes);
            });
        }
    }
}
