//! What a request that succeeds takes of the heap: the copy that is kept of it, and nothing if it will
//! not be repeated.

use allocation_counter::measure;
use reqwest::{Method, Request};
use tower_triage_core::Describe;
use tower_triage_reqwest::{Marked, ReqwestReplay, reqwest};
use tower_triage_retry::Replay;

fn request() -> Request {
    let url = "http://user:secret@example.com:8080/things/17?token=secret".parse().unwrap();
    let mut request = Request::new(Method::PUT, url);
    *request.body_mut() = Some(vec![7; 64 * 1024].into());
    request.headers_mut().insert("x-request-id", "r-17".parse().unwrap());
    request
}

#[test]
fn what_is_kept_is_one_copy_and_shares_the_body() {
    let (one, mut other) = (request(), request());
    let copying = measure(|| drop(one.try_clone().unwrap()));
    let keeping = measure(|| {
        std::mem::forget(ReqwestReplay::new().keep(&mut other).unwrap());
    });
    assert_eq!(keeping.count_total, copying.count_total);
    assert!(keeping.bytes_total < 4096, "the body is not copied: {keeping:?}");
}

#[test]
fn facts_take_nothing() {
    let rules = reqwest();
    let marked = Marked::from(request());
    let taken = measure(|| {
        assert_eq!(rules.operation(&marked), "PUT");
        assert_eq!(rules.key(&marked), "example.com:8080");
        assert_eq!(rules.target(&marked), "PUT example.com:8080/things/17");
        assert_eq!(rules.request_id(&marked).unwrap(), "r-17");
        assert!(rules.repeatable(&marked) && !rules.unit_of_work(&marked));
        assert!(rules.deadline(&marked).is_none() && rules.trace(&marked).is_none());
    });
    assert_eq!(taken.count_total, 0);
}
