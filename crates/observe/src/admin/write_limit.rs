//! `WriteLimit`: a stream whose peer has to read written bytes within a time limit.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream with a limit on how long one write may wait.
pub(super) struct WriteLimit<S> {
    stream: S,
    time_max: Duration,
    /// Set while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteLimit<S> {
    pub(super) fn new(stream: S, time_max: Duration) -> WriteLimit<S> {
        WriteLimit { stream, time_max, waits: None }
    }

    /// Passes on the result of a write; an error once it has waited too long.
    fn limit<T>(&mut self, context: &mut Context<'_>, found: Poll<Result<T>>) -> Poll<Result<T>> {
        if found.is_ready() {
            self.waits = None;
            return found;
        }
        let time_max = self.time_max;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(time_max)));
        ready!(waits.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let found = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, found)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let found = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(context, found)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let found = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit(context, found)
    }
}
