//! What a small user takes in: the crates below a program that uses only a retry and a breaker, and
//! how long they take to build.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

/// A user: whose crates, and the lines of its `[dependencies]`.
const USERS: [(&str, &[&str]); 8] = [
    (
        "ours, retry and breaker",
        &[
            "tower-triage-retry = { path = \"{crates}/retry\" }",
            "tower-triage-circuit-breaker = { path = \"{crates}/circuit-breaker\" }",
        ],
    ),
    ("tower 0.5, retry", &["tower = { version = \"0.5\", features = [\"retry\"] }"]),
    (
        "tower-resilience 0.13, retry and breaker",
        &["tower-resilience = { version = \"0.13\", features = [\"retry\", \"circuitbreaker\"] }"],
    ),
    (
        "seatbelt 0.11, retry and breaker, Tower",
        &[
            "seatbelt = { version = \"0.11\", features = [\"retry\", \"breaker\", \"tower-service\"] }",
            "tick = { version = \"0.8\", features = [\"tokio\"] }",
        ],
    ),
    ("failsafe 1.3, breaker", &["failsafe = \"1.3\""]),
    ("recloser 1.4, breaker", &["recloser = \"1.4\""]),
    ("backon 1.6, retry", &["backon = \"1.6\""]),
    ("nobody", &[]),
];

/// What a user takes in.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Whose crates.
    pub who: &'static str,
    /// Crates below the user's own, each counted once.
    pub crates: usize,
    /// The time of a release build from nothing.
    pub build: Duration,
}

/// Weighs every user, below the `target` directory. Asks cargo, which may fetch from its registry.
///
/// # Errors
/// A file cannot be written, or cargo cannot resolve or build a user.
pub fn weigh() -> io::Result<Vec<Weight>> {
    USERS.iter().map(|(who, dependencies)| weigh_one(who, dependencies)).collect()
}

fn weigh_one(who: &'static str, dependencies: &[&str]) -> io::Result<Weight> {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = benches.join("../crates").canonicalize()?;
    let folder = who.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let user = benches.join("../target/minimal-user").join(folder);
    write_user(&user, dependencies, &crates)?;
    let tree = cargo(&user, &["tree", "--edges", "normal,build", "--prefix", "none"])?;
    // What is built for this machine; the user itself is the first line.
    let mut names: Vec<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    names.sort_unstable();
    names.dedup();
    let target = user.join("target");
    if target.exists() {
        std::fs::remove_dir_all(&target)?;
    }
    let begun = Instant::now();
    cargo(&user, &["build", "--release", "--quiet"])?;
    Ok(Weight { who, crates: names.len().saturating_sub(1), build: begun.elapsed() })
}

/// A package outside every workspace.
fn write_user(user: &Path, dependencies: &[&str], crates: &Path) -> io::Result<()> {
    let mut manifest = "[package]\nname = \"minimal-user\"\nversion = \"0.0.0\"\n\
        edition = \"2024\"\n\n[workspace]\n\n[dependencies]\n"
        .to_owned();
    for line in dependencies {
        let line = line.replace("{crates}", &crates.to_string_lossy());
        writeln!(manifest, "{line}").map_err(io::Error::other)?;
    }
    std::fs::create_dir_all(user.join("src"))?;
    std::fs::write(user.join("Cargo.toml"), manifest)?;
    std::fs::write(user.join("src/lib.rs"), "//! Uses what it depends on.\n")
}

fn cargo(user: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(user)
        .env("CARGO_TARGET_DIR", user.join("target"))
        .stderr(Stdio::inherit())
        .output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!("cargo {} failed in {}", arguments.join(" "), user.display())))
}
