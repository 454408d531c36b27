//! Runs vector files: JSON arrays of rows, each one expected behaviour.

mod aws;
mod backoff;
mod circuit_breaker;
mod classification;
mod grpc_retry;
mod report;
mod retry_budget;

pub use self::report::{Outcome, Report};

use serde_json::Value;

/// Runs every row of one file. The file's format is told by the fields of its rows; a row that
/// fits no format is a failure.
pub fn run(file: &str, text: &str, report: &mut Report) {
    let rows = match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(rows)) => rows,
        Ok(_) => return report.fail(file, "a JSON array of rows", "something else"),
        Err(error) => return report.fail(file, "JSON", error),
    };
    if rows.is_empty() {
        report.fail(file, "at least one row", "an empty array");
    }
    for row in &rows {
        let name = row["name"].as_str().unwrap_or("(row without a name)");
        let outcome = run_row(row);
        report.add(&format!("{file}: {name}"), outcome);
    }
}

fn run_row(row: &Value) -> Outcome {
    let has = |field: &str| row.get(field).is_some();
    if let Some(kind) = row["type"].as_str() {
        protocol(kind, row)
    } else if has("policy") && has("events") {
        circuit_breaker::run(row)
    } else if has("backoff") && has("cases") {
        backoff::run(row)
    } else if has("budget") && has("events") {
        retry_budget::run(row)
    } else if has("kind") && has("input") {
        classification::run(row)
    } else {
        Outcome::fail("a row of a known format", "unknown fields")
    }
}

/// Rows of the AWS and gRPC files: whole retry algorithms of protocols.
fn protocol(kind: &str, row: &Value) -> Outcome {
    if row["optional"] == Value::Bool(true) && !aws::ADAPTIVE.contains(&kind) {
        return Outcome::skip("optional: no layer has to implement it");
    }
    // Both files have configurations to check; gRPC's rows name the field.
    let of_grpc = kind != "config_validation" || row["field"].is_string();
    if of_grpc && grpc_retry::TYPES.contains(&kind) {
        return grpc_retry::run(kind, row);
    }
    aws::run(kind, row).unwrap_or_else(|| Outcome::fail("a known type", kind))
}
