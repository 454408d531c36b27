//! One error as two types: reqwest-middleware's, and the one that our layers pass on.

use reqwest_middleware::Error;
use tower_triage_core::{AnyError, BoxError, CircuitOpen, Elapsed};

/// For a middleware or a caller outside: the client's errors as the client's, our rejections found by
/// type through anyhow.
pub(super) fn into_middleware(error: AnyError) -> Error {
    let error = error.into_inner();
    let error = match error.downcast::<Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    let error = match error.downcast::<reqwest::Error>() {
        Ok(error) => return Error::Reqwest(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<CircuitOpen>() {
        Ok(error) => return Error::middleware(*error),
        Err(error) => error,
    };
    match error.downcast::<Elapsed>() {
        Ok(error) => Error::middleware(*error),
        Err(error) => Error::Middleware(anyhow::Error::from_boxed(error)),
    }
}

/// For a layer: the error itself, found by `downcast_ref`, and not the enum around it.
pub(super) fn from_middleware(error: Error) -> AnyError {
    match error {
        Error::Reqwest(error) => error.into(),
        Error::Middleware(error) => {
            let error: BoxError = error.reallocate_into_boxed_dyn_error_without_backtrace();
            AnyError::from_boxed(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;

    /// Through a middleware and back nothing is lost of an error's type, whoever made it.
    #[test]
    fn errors_keep_their_type_both_ways() {
        let open = AnyError::from(CircuitOpen::new("shop".into(), Duration::from_secs(3)));
        let outside = into_middleware(open);
        assert!(matches!(&outside, Error::Middleware(error) if error.is::<CircuitOpen>()));
        assert!(from_middleware(outside).downcast_ref::<CircuitOpen>().is_some());

        let late = into_middleware(AnyError::from(Elapsed::limit(Duration::from_secs(3))));
        assert!(matches!(&late, Error::Middleware(error) if error.is::<Elapsed>()));
        assert!(from_middleware(late).downcast_ref::<Elapsed>().is_some());

        let own = into_middleware(AnyError::from(io::Error::other("own")));
        assert!(from_middleware(own).downcast_ref::<io::Error>().is_some());

        let theirs = Error::middleware(io::Error::other("theirs"));
        assert!(from_middleware(theirs).downcast_ref::<io::Error>().is_some());
    }

    #[tokio::test]
    async fn the_clients_errors_are_the_clients() {
        let error = reqwest::Client::new().get("no url").build().unwrap_err();
        let outside = into_middleware(AnyError::from(error));
        assert!(matches!(&outside, Error::Reqwest(error) if error.is_builder()));
        let inside = from_middleware(outside);
        assert!(inside.downcast_ref::<reqwest::Error>().unwrap().is_builder());
    }
}
