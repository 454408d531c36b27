//! Watches for the end of what people were told of.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tower_triage_core::incident::run_detached;

use crate::desk::Inner;
use crate::storm::Next;

impl Inner {
    /// Sees to it that somebody watches the receiver, as long as people believe in a trouble.
    ///
    /// Why a task: an end is that nothing happens, so there is no call that could poll. Who ends it:
    /// itself, when there is no trouble that people were told of; the desk, when it is dropped (such
    /// a trouble is then not resolved); the runtime.
    pub(crate) fn watch(self: &Arc<Self>, at: usize) {
        if self.policy.resolve_after.is_none() {
            return;
        }
        let post = &self.posts[at];
        // Whoever watches already may have to look earlier.
        post.news.notify_one();
        let Ok(runtime) = Handle::try_current() else { return };
        if !std::mem::replace(&mut post.storm().watched, true) {
            let (desk, news) = (Arc::downgrade(self), Arc::clone(&post.news));
            let watch = Watch { desk, at, on: true };
            run_detached(|| drop(runtime.spawn(watch.run(news))));
        }
    }
}

/// The task. It holds the desk only while it sends.
struct Watch {
    desk: Weak<Inner>,
    at: usize,
    on: bool,
}

impl Watch {
    async fn run(mut self, news: Arc<Notify>) {
        while let Some(desk) = self.desk.upgrade() {
            let post = &desk.posts[self.at];
            let now = desk.clock.now();
            match self.next(&desk) {
                Next::Over(over) => desk.resolve(post, over).await,
                Next::At(at) => {
                    let left = at.saturating_sub(now);
                    drop(desk);
                    // News and the end of the time are one: look again.
                    _ = tokio::time::timeout(left, news.notified()).await;
                }
                Next::Nothing => return,
            }
        }
    }

    /// What comes next, or the end of the watch: one decision under one lock, so that a notification
    /// at this moment finds either this watch or none.
    fn next(&mut self, desk: &Inner) -> Next<super::receiver::Told> {
        let mut watched = desk.posts[self.at].storm();
        let next = watched.storm.over(desk.clock.now());
        if matches!(next, Next::Nothing) {
            watched.watched = false;
            self.on = false;
        }
        next
    }
}

/// Also when the runtime ends.
impl Drop for Watch {
    fn drop(&mut self) {
        if let (true, Some(desk)) = (self.on, self.desk.upgrade()) {
            desk.posts[self.at].storm().watched = false;
        }
    }
}
