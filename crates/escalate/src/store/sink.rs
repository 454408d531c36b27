//! A store as a sink.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::escalation::Escalation;
use crate::store::{Store, StoreError};

/// Puts each escalation into a store. The sink that a receiver of records has first.
#[derive(Clone)]
pub struct StoreSink {
    store: Arc<dyn Store>,
}

impl StoreSink {
    /// Escalations go to `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl Service<Escalation> for StoreSink {
    type Response = ();
    type Error = StoreError;
    type Future = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let store = Arc::clone(&self.store);
        Box::pin(async move { store.put(escalation).await.map(drop) })
    }
}

impl fmt::Debug for StoreSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSink").field("store", &self.store).finish()
    }
}
