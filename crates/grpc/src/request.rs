//! What a request says of its method.

use http::{Extensions, Uri};
use tonic::GrpcMethod;
use tower_triage_core::Operation;

/// A full method name, in its two parts: `shop.Orders` and `Get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method<'a> {
    /// The service with its package.
    pub service: &'a str,
    /// The method's own name.
    pub name: &'a str,
}

impl<'a> Method<'a> {
    /// The method of a request: from the [`GrpcMethod`] that a generated client leaves, else from
    /// the path, if it is one of gRPC's (`/shop.Orders/Get`).
    #[must_use]
    pub fn of<B>(request: &'a http::Request<B>) -> Option<Self> {
        Self::find(request.extensions(), request.uri())
    }

    fn find(extensions: &'a Extensions, uri: &'a Uri) -> Option<Self> {
        match extensions.get::<GrpcMethod<'static>>() {
            Some(method) => Some(Self { service: method.service(), name: method.method() }),
            None => Self::of_path(uri.path()),
        }
    }

    /// The last two parts of a path, if they are names; a prefix belongs to a proxy's routing.
    fn of_path(path: &'a str) -> Option<Self> {
        let (before, name) = path.rsplit_once('/')?;
        let (_, service) = before.rsplit_once('/')?;
        (is_name(service) && is_name(name)).then_some(Self { service, name })
    }

    /// Is it `name`, which is a full method name, or a service, meaning all of its methods?
    #[must_use]
    pub fn is(self, name: &str) -> bool {
        match name.split_once('/') {
            Some((service, method)) => self.service == service && self.name == method,
            None => self.service == name,
        }
    }

    /// `shop.Orders/Get`.
    #[must_use]
    pub fn operation(self) -> Operation {
        Operation::from_parts(&[self.service, "/", self.name])
    }
}

/// Letters, digits, points and underscores: what protocol buffers allow.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_';
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(uri: &str) -> Option<String> {
        let request = http::Request::post(uri).body(()).unwrap();
        Method::of(&request).map(|method| method.operation().to_string())
    }

    #[test]
    fn paths_of_grpc_and_no_others() {
        assert_eq!(operation("/shop.Orders/Get").as_deref(), Some("shop.Orders/Get"));
        assert_eq!(operation("http://h/api/shop.Orders/Get").as_deref(), Some("shop.Orders/Get"));
        for other in ["/", "/Get", "//", "/shop.Orders/", "/orders/a%20b", "/a/b-c"] {
            assert_eq!(operation(other), None, "{other}");
        }
    }

    #[test]
    fn the_clients_word_comes_before_the_path() {
        let mut request = http::Request::post("/other/path").body(()).unwrap();
        request.extensions_mut().insert(GrpcMethod::new("shop.Orders", "Get"));
        let method = Method::of(&request).unwrap();
        assert!(method.is("shop.Orders/Get") && method.is("shop.Orders"));
        assert!(!method.is("shop.Orders/Put") && !method.is("shop") && !method.is(""));
    }
}
