//! `fathom bench serve-http`: the Web server of the HTTP workload, for another machine.

use crate::{args, progress};
use anyhow::Result;
use std::process::ExitCode;
use workload::Error;
use workload::http::Server;

pub fn run(args: &args::ServeHttp) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let server = match Server::bind(&args.listen, args.bytes) {
        Err(Error::Usage(text)) => {
            eprintln!("fathom bench serve-http: {text}");
            return Ok(ExitCode::from(2));
        }
        other => other?,
    };
    let address = server.address();
    let reach = match address.ip() {
        ip if ip.is_loopback() => "this machine only".to_string(),
        ip if ip.is_unspecified() => {
            format!("anyone who can reach this machine: --url http://ITS-ADDRESS:{}/", address.port())
        }
        _ => "anyone who can reach this address".to_string(),
    };
    // The URL alone on stdout, for scripts that asked for port 0.
    println!("http://{address}/");
    eprintln!("fathom: {} bytes per response, open to {reach}; Ctrl-C to stop", args.bytes);
    server.serve(args.threads.into(), &|| context.cancelled())?;
    Ok(ExitCode::SUCCESS)
}
