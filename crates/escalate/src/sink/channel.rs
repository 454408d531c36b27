//! Escalations to a task of your own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tower_service::Service;
use tower_triage_core::ConfigError;

use crate::Escalation;

/// Sends each escalation into a bounded channel. While the channel is full a send waits, within
/// the desk's limit per try.
#[derive(Clone, Debug)]
pub struct ChannelSink {
    sender: mpsc::Sender<Escalation>,
}

impl ChannelSink {
    /// A sink, and where its escalations come out; at most `capacity` wait in between.
    ///
    /// # Errors
    /// A `capacity` of zero, or beyond what a channel of tokio can have.
    pub fn new(capacity: usize) -> Result<(Self, mpsc::Receiver<Escalation>), ConfigError> {
        if capacity == 0 || capacity > tokio::sync::Semaphore::MAX_PERMITS {
            return Err(ConfigError::new("capacity", capacity, "a channel holds at least one"));
        }
        let (sender, receiver) = mpsc::channel(capacity);
        Ok((Self { sender }, receiver))
    }
}

/// Into a channel that you have.
impl From<mpsc::Sender<Escalation>> for ChannelSink {
    fn from(sender: mpsc::Sender<Escalation>) -> Self {
        Self { sender }
    }
}

impl Service<Escalation> for ChannelSink {
    type Response = ();
    type Error = ChannelClosed;
    type Future = Pin<Box<dyn Future<Output = Result<(), ChannelClosed>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ChannelClosed>> {
        Poll::Ready(if self.sender.is_closed() { Err(ChannelClosed) } else { Ok(()) })
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let sender = self.sender.clone();
        Box::pin(async move { sender.send(escalation).await.map_err(|_| ChannelClosed) })
    }
}

/// Nobody receives any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelClosed;

impl fmt::Display for ChannelClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver of the escalations is gone")
    }
}

impl std::error::Error for ChannelClosed {}
