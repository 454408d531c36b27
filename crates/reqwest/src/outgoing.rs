//! The requests that our layers see above a reqwest client.

use std::fmt;

use http::Extensions;
use reqwest::Request;

/// A request with marks: [`reqwest::Request`] keeps its extensions to itself, so that rules cannot
/// read a mark in them. This type has them beside it.
///
/// What the stack of a [`StackMiddleware`](crate::StackMiddleware) is called with; its extensions are
/// those of reqwest-middleware (`RequestBuilder::with_extension`). Around a plain client it is of use
/// where requests need marks; `.map_request(Marked::into_request)` leads back below the layers.
///
/// ```
/// use tower_triage_http::Repeatable;
/// use tower_triage_reqwest::Marked;
///
/// let client = reqwest::Client::new();
/// let request = client.post("http://example.com/search").build()?;
/// let request = Marked::from(request).with(Repeatable);
/// # let _ = request;
/// # Ok::<_, reqwest::Error>(())
/// ```
pub struct Marked {
    /// The request.
    pub request: Request,
    /// Its marks: `Repeatable`, `UnitOfWork`, `Deadline`, `RouteTemplate` of `tower-triage-http`, and
    /// whatever else is there.
    pub extensions: Extensions,
}

impl Marked {
    /// Adds a mark.
    #[must_use]
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, mark: T) -> Self {
        self.extensions.insert(mark);
        self
    }

    /// The request without its marks.
    #[must_use]
    pub fn into_request(self) -> Request {
        self.request
    }

    /// A copy; `None` if its body is a stream.
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        let request = self.request.try_clone()?;
        Some(Self { request, extensions: self.extensions.clone() })
    }
}

impl From<Request> for Marked {
    fn from(request: Request) -> Self {
        Self { request, extensions: Extensions::new() }
    }
}

/// Method and target without the query; never a header's value or a mark.
impl fmt::Debug for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marked")
            .field("method", self.request.method())
            .field("host", &self.request.url().host_str())
            .field("path", &self.request.url().path())
            .finish_non_exhaustive()
    }
}

/// What a reqwest client can send: [`reqwest::Request`], [`Marked`], or a type of your own around one.
pub trait Outgoing: Sized {
    /// The request.
    fn request(&self) -> &Request;
    /// The request, to be changed.
    fn request_mut(&mut self) -> &mut Request;
    /// The marks that can be read.
    fn extensions(&self) -> Option<&Extensions>;
    /// From a request and its marks.
    fn from_parts(request: Request, extensions: Extensions) -> Self;
    /// Into a request and its marks.
    fn into_parts(self) -> (Request, Extensions);
    /// A copy; `None` if its body is a stream.
    fn try_clone(&self) -> Option<Self>;
    /// Adds a mark.
    ///
    /// # Errors
    /// The reason for which it cannot.
    fn mark<T: Clone + Send + Sync + 'static>(self, mark: T) -> Result<Self, &'static str>;
}

impl Outgoing for Marked {
    fn request(&self) -> &Request {
        &self.request
    }

    fn request_mut(&mut self) -> &mut Request {
        &mut self.request
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(&self.extensions)
    }

    fn from_parts(request: Request, extensions: Extensions) -> Self {
        Self { request, extensions }
    }

    fn into_parts(self) -> (Request, Extensions) {
        (self.request, self.extensions)
    }

    fn try_clone(&self) -> Option<Self> {
        self.try_clone()
    }

    fn mark<T: Clone + Send + Sync + 'static>(self, mark: T) -> Result<Self, &'static str> {
        Ok(self.with(mark))
    }
}

impl Outgoing for Request {
    fn request(&self) -> &Request {
        self
    }

    fn request_mut(&mut self) -> &mut Request {
        self
    }

    fn extensions(&self) -> Option<&Extensions> {
        None
    }

    /// The marks are lost.
    fn from_parts(request: Request, _extensions: Extensions) -> Self {
        request
    }

    fn into_parts(self) -> (Request, Extensions) {
        (self, Extensions::new())
    }

    fn try_clone(&self) -> Option<Self> {
        self.try_clone()
    }

    /// The way to a reqwest request's extensions leads through `http::Request`, which has no place for
    /// a fragment, and none for "no body".
    fn mark<T: Clone + Send + Sync + 'static>(mut self, mark: T) -> Result<Self, &'static str> {
        let (url, body) = (self.url().clone(), self.body_mut().take());
        let mut request = http::Request::try_from(self).map_err(|_| NO_URI)?;
        request.extensions_mut().insert(mark);
        let mut request = Self::try_from(request).map_err(|_| NO_URI)?;
        (*request.url_mut(), *request.body_mut()) = (url, body);
        Ok(request)
    }
}

/// Nothing that could have been sent a first time.
const NO_URI: &str = "the request's URL is no URI";
