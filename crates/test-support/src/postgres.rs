//! A PostgreSQL server of one's own: in a temporary folder, on a free port, gone with its owner.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{fs, iter};

/// Set to anything, tests that need PostgreSQL are left out, and say so.
pub const SKIP: &str = "TOWER_TRIAGE_SKIP_POSTGRES";

/// A running server, user `postgres` without a password, on 127.0.0.1. Dropped, it is stopped and
/// its folder removed; also when its owner is killed, because a shell waits at the other end of a
/// pipe.
#[derive(Debug)]
pub struct PostgresServer {
    programs: Programs,
    folder: tempfile::TempDir,
    port: u16,
    running: Option<Running>,
}

/// What is started, and as whom.
#[derive(Debug)]
struct Programs {
    folder: PathBuf,
    /// PostgreSQL refuses to run as root, so root lends it the package's user.
    user: Option<(u32, u32)>,
}

/// The shell that stops the server when the pipe to it closes.
#[derive(Debug)]
struct Running {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl PostgresServer {
    /// A new server, with `settings` in the form `name=value`.
    ///
    /// # Errors
    /// What is missing, and how to get it; or what the server said.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        let programs = Programs::find()?;
        let folder = tempfile::Builder::new()
            .prefix("tower-triage-postgres-")
            .tempdir()
            .map_err(|error| format!("no temporary folder: {error}"))?;
        programs.give(folder.path())?;
        let mut server = Self { programs, folder, port: 0, running: None };
        server.init(settings)?;
        // Who looks for a port at the same time may find the same one: the others find another one.
        for _ in 0..10 {
            server.port = free_port()?;
            server.listen_there()?;
            match server.resume() {
                Err(said) if said.contains("Address already in use") => {}
                done => return done.map(|()| server),
            }
        }
        Err("PostgreSQL finds no port".to_owned())
    }

    /// A server that the tests of one process share: started by the first, stopped after the last.
    /// `None`, with a message, if the environment asks to leave such tests out ([`SKIP`]).
    ///
    /// # Panics
    /// If it does not start: a test that needs it has failed then.
    #[must_use]
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        if skipped() {
            return None;
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start(&[]).unwrap_or_else(|problem| panic!("{problem}")));
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// A server for one test that stops it, restarts it or uses it up. `None` as for
    /// [`shared`](Self::shared).
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn own(settings: &[&str]) -> Option<Self> {
        let start = || Self::start(settings).unwrap_or_else(|problem| panic!("{problem}"));
        (!skipped()).then(start)
    }

    /// How to connect.
    #[must_use]
    pub fn config(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Stops it, its sessions rolled back ("fast"), or as a crash would ("immediate").
    pub fn stop(&mut self, crash: bool) {
        let Some(running) = self.running.take() else { return };
        if crash {
            let _ = self.control(&["-m", "immediate", "-w", "stop"]);
        }
        running.end(b"keep\n");
    }

    /// Starts it again, same data, same port.
    ///
    /// # Errors
    /// What the server said.
    pub fn resume(&mut self) -> Result<(), String> {
        // `read` ends when the pipe closes, whoever closed it; without a last word nobody wants the
        // data any more, because the owner is dropped or was killed. A signal to the whole group must not end the
        // shell before it has stopped the server.
        const SCRIPT: &str = r#"
            trap : INT TERM HUP
            "$0/pg_ctl" -D "$1/data" -w -l "$1/log" start >"$1/start" 2>&1 || { cat "$1/start" "$1/log"; exit 1; }
            echo running
            read -r last
            [ "$last" = keep ] && exec "$0/pg_ctl" -D "$1/data" -m fast -w stop >/dev/null 2>&1
            "$0/pg_ctl" -D "$1/data" -m immediate -w stop >/dev/null 2>&1
            rm -rf "$1"
        "#;
        let mut shell = self.programs.command("/bin/sh");
        let mut shell = shell
            .args(["-c", SCRIPT])
            .arg(&self.programs.folder)
            .arg(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("no shell: {error}"))?;
        let pipe = shell.stdin.take();
        let mut said = String::new();
        if let Some(stdout) = shell.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let _ = stdout.read_line(&mut said);
            if said.trim() != "running" {
                let _ = stdout.read_to_string(&mut said);
            }
        }
        self.running = Some(Running { shell, pipe });
        if said.trim() == "running" {
            return Ok(());
        }
        self.stop(false);
        Err(format!("PostgreSQL did not start: {said}"))
    }

    fn init(&self, settings: &[&str]) -> Result<(), String> {
        let data = self.folder.path().join("data");
        let program = self.programs.folder.join("initdb");
        let output = self
            .programs
            .command(program)
            .args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "-N", "-D"])
            .arg(&data)
            .output()
            .map_err(|error| format!("initdb: {error}"))?;
        if !output.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let file = data.join("postgresql.conf");
        let mut text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let sockets = format!("unix_socket_directories='{}'", self.folder.path().display());
        let usual =
            [&*sockets, "listen_addresses='127.0.0.1'", "fsync=off", "restart_after_crash=on"];
        for setting in usual.iter().chain(settings) {
            text.push_str(setting);
            text.push('\n');
        }
        fs::write(&file, text).map_err(|error| error.to_string())
    }

    /// The last `port` counts.
    fn listen_there(&self) -> Result<(), String> {
        let file = self.folder.path().join("data/postgresql.conf");
        let file = fs::OpenOptions::new().append(true).open(file);
        let written = file.and_then(|mut file| writeln!(file, "port={}", self.port));
        written.map_err(|error| error.to_string())
    }

    fn control(&self, arguments: &[&str]) -> Result<(), String> {
        let program = self.programs.folder.join("pg_ctl");
        let output = self
            .programs
            .command(program)
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .args(arguments)
            .output()
            .map_err(|error| format!("pg_ctl: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("pg_ctl: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.end(b"");
        }
    }
}

impl Running {
    fn end(mut self, last: &[u8]) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(last);
        }
        let _ = self.shell.wait();
    }
}

impl Programs {
    fn find() -> Result<Self, String> {
        const MISSING: &str = "no PostgreSQL server is installed: `apt-get install postgresql` \
            (or put its `bin` folder into PATH)";
        let folder = debian()
            .or_else(in_path)
            .ok_or_else(|| format!("{MISSING}; tests are left out with {SKIP}=1"))?;
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| {
            use std::os::unix::fs::MetadataExt;
            own.uid() == 0
        });
        let user = match is_root {
            true => Some(package_user().ok_or("root needs the user `postgres` of the package")?),
            false => None,
        };
        Ok(Self { folder, user })
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        // Somewhere that this user may be.
        command.current_dir("/").env("LC_ALL", "C");
        command
    }

    fn give(&self, folder: &Path) -> Result<(), String> {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .and_then(|()| match self.user {
                Some((user, group)) => chown(folder, Some(user), Some(group)),
                None => Ok(()),
            })
            .map_err(|error| format!("{}: {error}", folder.display()))
    }
}

fn skipped() -> bool {
    let skipped = std::env::var_os(SKIP).is_some();
    if skipped {
        eprintln!("SKIPPED, not passed: {SKIP} is set, so nothing runs against PostgreSQL");
    }
    skipped
}

/// The newest version of Debian's packages.
fn debian() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions
        .filter_map(|version| Some(version.ok()?.path()))
        .filter(|version| version.join("bin/initdb").is_file())
        .max_by_key(number)
        .map(|version| version.join("bin"))
}

fn in_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file())
}

fn package_user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Not of those that the system gives to whoever wants any port: such a one would be somebody's now and
/// then when the server starts, or starts again.
fn free_port() -> Result<u16, String> {
    const FIRST: u16 = 12_000;
    const COUNT: u64 = 20_000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let any = || FIRST + (RandomState::new().hash_one(()) % COUNT) as u16;
    iter::repeat_with(any).take(1000).find(is_free).ok_or_else(|| "no port is free".to_owned())
}
