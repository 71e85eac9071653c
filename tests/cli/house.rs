//! A house of the real program: `init`, then `serve` on a free port, stopped at the end.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub struct HouseProcess {
    pub url: String,
    pub folder: PathBuf,
    child: Option<Child>,
}

impl HouseProcess {
    pub fn init(folder: &Path, domain: &str) -> PathBuf {
        let house = folder.join(domain);
        let made = program(folder).args(["init", "--domain", domain, "--dir"]).arg(&house).output().expect("init");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        house
    }

    pub fn start(folder: &Path, domain: &str) -> HouseProcess {
        HouseProcess::serve(HouseProcess::init(folder, domain))
    }

    /// Serves a folder that was made before.
    pub fn serve(folder: PathBuf) -> HouseProcess {
        let mut command = program(&folder);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config", "verifica.toml"]).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().expect("serve");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr"));
        let mut line = String::new();
        while !line.starts_with("ready ") {
            line.clear();
            assert!(lines.read_line(&mut line).expect("a line") > 0, "the house ended before it was ready");
        }
        // Nobody reads its log; it must not fill the pipe.
        std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        let at = line.trim().rsplit(' ').next().expect("an address");
        HouseProcess { url: format!("http://{at}"), folder, child: Some(child) }
    }

    #[allow(dead_code)]
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("running").id()
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("running").id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill").success());
    }

    /// Waits for the end that a signal asked for.
    pub fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("running");
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("status") {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the house does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for HouseProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verifica"));
    command.current_dir(folder).env_clear().stdin(Stdio::null());
    command
}
