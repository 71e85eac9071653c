//! Attachments under way: only so many at once, and only so many of one agent, each with its bytes moving or ended.

use super::doors::lock;
use crate::limits;
use crate::objects::{ObjectFault, Reading};
use crate::refusal::{Refusal, Rule};
use crate::wire::address::Address;
use crate::wire::digest::Hashing;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// The places for transfers.
pub struct Transfers {
    all: Arc<Semaphore>,
    by_agent: Arc<Mutex<HashMap<Address, usize>>>,
}

/// One transfer, as long as it lives.
pub struct Transfer {
    by_agent: Arc<Mutex<HashMap<Address, usize>>>,
    agent: Address,
    _place: OwnedSemaphorePermit,
}

/// An object on its way out; says when its last byte was taken.
#[derive(Debug)]
pub struct Outgoing {
    pieces: mpsc::Receiver<Bytes>,
    left: u64,
    taken: Option<oneshot::Sender<()>>,
}

impl Default for Transfers {
    fn default() -> Transfers {
        let all = Arc::new(Semaphore::new(limits::BLOB_TRANSFERS_MAX));
        Transfers { all, by_agent: Arc::default() }
    }
}

impl Transfers {
    pub fn enter(&self, agent: &Address) -> Result<Transfer, Refusal> {
        let busy = |why: &str| Refusal::new(Rule::Overloaded, why).retry_after(1);
        let mut by_agent = lock(&self.by_agent);
        let own = by_agent.get(agent).copied().unwrap_or(0);
        if own >= limits::BLOB_TRANSFERS_PER_AGENT_MAX {
            let most = limits::BLOB_TRANSFERS_PER_AGENT_MAX;
            return Err(Refusal::new(
                Rule::RateLimited,
                format!("{most} transfers of this agent are under way already"),
            ));
        }
        let place = self.all.clone().try_acquire_owned();
        let place =
            place.map_err(|_| busy("the house is moving as many attachments as it can; try again in a moment"))?;
        by_agent.insert(agent.clone(), own + 1);
        Ok(Transfer { by_agent: self.by_agent.clone(), agent: agent.clone(), _place: place })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut by_agent = lock(&self.by_agent);
        if let Some(own) = by_agent.get_mut(&self.agent) {
            *own -= 1;
            if *own == 0 {
                by_agent.remove(&self.agent);
            }
        }
    }
}

/// Sends an object piece by piece while somebody takes it. The last piece leaves only if all of them together are what
/// was kept. `had` runs when the last one was taken.
pub fn send(
    mut reading: Reading,
    sha256: String,
    place: Transfer,
    had: impl Future<Output = ()> + Send + 'static,
) -> Outgoing {
    let (to, pieces) = mpsc::channel(1);
    let (taken, was_taken) = oneshot::channel();
    let left = reading.bytes;
    tokio::spawn(async move {
        let whole = async {
            let mut digest = Hashing::default();
            let mut held: Option<Bytes> = None;
            while let Some(piece) = reading.next().await? {
                digest.update(&piece);
                if let Some(before) = held.replace(piece) {
                    hand(&to, before).await?;
                }
            }
            if digest.finish().hex() != sha256 {
                return Err(ObjectFault::Io(io::Error::other("an object is not what was kept under its name")));
            }
            if let Some(last) = held {
                hand(&to, last).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(Duration::from_millis(limits::BLOB_TRANSFER_MS), whole).await {
            Ok(Ok(())) => {
                if was_taken.await.is_ok() {
                    had.await;
                }
            }
            Ok(Err(ObjectFault::Slow)) | Err(_) => {}
            Ok(Err(fault)) => tracing::error!(event = "attachment_unreadable", error = %fault),
        }
        drop(place);
    });
    Outgoing { pieces, left, taken: Some(taken) }
}

/// Whoever takes nothing, or has gone, gets nothing more.
async fn hand(to: &mpsc::Sender<Bytes>, piece: Bytes) -> Result<(), ObjectFault> {
    match tokio::time::timeout(Duration::from_millis(limits::BLOB_STALL_MS), to.send(piece)).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(ObjectFault::Slow),
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match ready!(self.pieces.poll_recv(cx)) {
            Some(piece) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                if self.left == 0
                    && let Some(taken) = self.taken.take()
                {
                    // Nobody listens when the transfer was too slow already.
                    let _ = taken.send(());
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            None if self.left == 0 => Poll::Ready(None),
            // The answer breaks off: whoever reads it sees that it is not whole.
            None => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_has_only_so_many_transfers_and_all_together_too() {
        let transfers = Transfers::default();
        let ana = Address::parse("ana@mar.example").expect("ana");
        let own: Vec<Transfer> =
            (0..limits::BLOB_TRANSFERS_PER_AGENT_MAX).map(|_| transfers.enter(&ana).expect("within")).collect();
        assert_eq!(transfers.enter(&ana).err().map(|r| r.code()), Some(429));
        let others: Vec<Transfer> = (own.len()..limits::BLOB_TRANSFERS_MAX)
            .map(|n| transfers.enter(&Address::parse(&format!("a{n}@mar.example")).expect("a")).expect("within"))
            .collect();
        let eva = Address::parse("eva@mar.example").expect("eva");
        assert_eq!(transfers.enter(&eva).err().map(|r| r.code()), Some(503));
        drop(own);
        assert!(transfers.enter(&eva).is_ok() && transfers.enter(&ana).is_ok());
        drop(others);
        assert!(lock(&transfers.by_agent).is_empty());
    }
}
