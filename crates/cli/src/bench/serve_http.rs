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
            format!("everyone who reaches this machine: --url http://ITS-ADDRESS:{}/", address.port())
        }
        _ => "everyone who reaches that address".to_string(),
    };
    // The URL alone on stdout, for scripts that asked for port 0.
    println!("http://{address}/");
    eprintln!("fathom: {} bytes a response, for {reach}; Ctrl-C ends it", args.bytes);
    server.serve(args.threads.into(), &|| context.cancelled())?;
    Ok(ExitCode::SUCCESS)
}
