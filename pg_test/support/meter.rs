//! What is measured with: a client without any of the product, what the system knows of a process, what the server
//! knows of its tables, and the numbers by which a measurement is made longer.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use postgres::Client;

/// One connection that posts and waits for the answer, nothing more.
pub struct Bare {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Bare {
    /// Connects to a receiver.
    pub fn connect(address: SocketAddr) -> Bare {
        let stream = TcpStream::connect(address).expect("the receiver listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Bare {
            stream: BufReader::new(stream),
            host: address.to_string(),
        }
    }

    /// Posts a body to `/bare` and reads the whole answer.
    pub fn post(&mut self, id: &str, body: &str) {
        let request = format!(
            "POST /bare HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nwebhook-id: {id}\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream
            .get_mut()
            .write_all(request.as_bytes())
            .expect("the receiver reads");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream
                .read_line(&mut line)
                .expect("the receiver answers");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        self.stream
            .read_exact(&mut answer)
            .expect("the whole answer");
    }
}

/// User and system time of a process in seconds, by ticks of 10 ms.
pub fn cpu_seconds(pid: i32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process exists");
    // The name of the process stands in parentheses and may hold spaces.
    let after = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// Anonymous memory of a process that is in RAM, in kB: its heap and stacks, without shared memory and files.
pub fn anonymous_kb(pid: i32) -> i64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process exists");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("a number of kB")
}

/// What a process has open.
#[derive(Clone, Copy, Debug)]
pub struct OpenFiles {
    /// Connections, pipes, devices and the like.
    pub others: usize,
    /// Files on a disk. PostgreSQL keeps those of tables and indexes open, up to max_files_per_process.
    pub files: usize,
}

/// What a process of ours has open.
pub fn open_files(pid: i32) -> OpenFiles {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process that we may look into");
    let mut open = OpenFiles {
        others: 0,
        files: 0,
    };
    for entry in folder.flatten() {
        // One that was closed meanwhile is not open.
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        if target.is_absolute() && !target.starts_with("/dev") {
            open.files += 1;
        } else {
            open.others += 1;
        }
    }
    open
}

/// What the server knows of a table of the extension.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Live rows, as the statistics have them.
    pub live: i64,
    /// Dead rows.
    pub dead: i64,
    /// Dead rows from which on autovacuum takes it up.
    pub threshold: i64,
    /// Row versions written by updates so far.
    pub updated: i64,
    /// Bytes with indexes and TOAST.
    pub bytes: i64,
}

/// Every table of the schema, in the order of names.
pub fn tables(sql: &mut Client) -> Vec<Table> {
    let query = "
        select s.relname::text, s.n_live_tup, s.n_dead_tup, s.n_tup_upd, pg_total_relation_size(s.relid),
               (coalesce((select o.option_value from pg_options_to_table(c.reloptions) as o
                           where o.option_name = 'autovacuum_vacuum_threshold'),
                         current_setting('autovacuum_vacuum_threshold'))::float8
                + coalesce((select o.option_value from pg_options_to_table(c.reloptions) as o
                             where o.option_name = 'autovacuum_vacuum_scale_factor'),
                           current_setting('autovacuum_vacuum_scale_factor'))::float8
                  * greatest(c.reltuples, 0))::bigint
          from pg_stat_all_tables as s
          join pg_class as c on c.oid = s.relid
         where s.schemaname = 'webhook'
         order by 1";
    let rows = sql.query(query, &[]).expect("the statistics of tables");
    rows.iter()
        .map(|row| Table {
            name: row.get(0),
            live: row.get(1),
            dead: row.get(2),
            updated: row.get(3),
            bytes: row.get(4),
            threshold: row.get(5),
        })
        .collect()
}

/// A number from the environment, or this one.
///
/// # Panics
/// When it is no number.
pub fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number"))
    })
}

/// The median; of an even count the upper one of the middle two.
///
/// # Panics
/// When there is no value.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
