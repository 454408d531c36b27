//! Which requests ask a model.

use http::Method;
use tower_triage_http::RequestHead;

/// Does this request ask a model for an answer, so that asking twice is as good as once (but for the
/// bill)? A POST to one of the providers' inference endpoints; what creates something (a batch, a
/// file, a message in a stored thread) is none.
pub(crate) fn is_inference(head: RequestHead<'_>) -> bool {
    let path = head.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    *head.method == Method::POST
        && !path.contains("/threads/")
        && !path.contains("/conversations/")
        && ENDPOINTS.iter().any(|end| path.ends_with(end))
}

/// How the paths of inference end.
const ENDPOINTS: [&str; 23] = [
    // OpenAI, and those that speak its language; Azure.
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/moderations",
    "/images/generations",
    "/audio/speech",
    "/rerank",
    // Anthropic.
    "/messages",
    "/messages/count_tokens",
    "/complete",
    // Gemini, Vertex.
    ":generateContent",
    ":streamGenerateContent",
    ":countTokens",
    ":embedContent",
    ":batchEmbedContents",
    ":predict",
    ":rawPredict",
    ":streamRawPredict",
    // Bedrock.
    "/invoke",
    "/invoke-with-response-stream",
    "/converse",
    "/converse-stream",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(method: Method, path: &str) -> bool {
        let request = http::Request::builder().method(method).uri(path).body(()).unwrap();
        is_inference(RequestHead::from(&request))
    }

    #[test]
    fn asking_a_model_is_inference_and_creating_something_is_not() {
        for path in [
            "https://api.openai.com/v1/chat/completions",
            "/v1/responses/",
            "/v1/messages?beta=true",
            "/v1beta/models/gemini-pro:streamGenerateContent?alt=sse",
            "/openai/deployments/mine/chat/completions?api-version=1",
            "/model/anthropic.claude/converse-stream",
        ] {
            assert!(asks(Method::POST, path), "{path}");
            assert!(!asks(Method::GET, path), "{path}");
        }
        for path in [
            "/v1/messages/batches",
            "/v1/files",
            "/v1/batches",
            "/v1/threads/t1/messages",
            "/v1/responses/r1/cancel",
            "/v1/fine_tuning/jobs",
        ] {
            assert!(!asks(Method::POST, path), "{path}");
        }
    }
}
