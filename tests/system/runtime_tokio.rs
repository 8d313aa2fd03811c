// runtime_tokio.rs - a tokio server and client, whose workers wait for events before there is a socket; for sockets_runtimes.py.
//
// Usage: late serve|call ADDRESS PORT
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let length = stream.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&bytes[..length]).await?;
    }
}

async fn call(to: SocketAddr, number: u8) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(to).await?;
    let mut right = true;
    for round in 0..50 {
        let sent = [number, round];
        let mut back = [0; 2];
        stream.write_all(&sent).await?;
        stream.read_exact(&mut back).await?;
        right = right && back == sent;
    }
    Ok(right)
}

#[tokio::main(worker_threads = 3)]
async fn main() -> std::io::Result<()> {
    let all: Vec<String> = std::env::args().collect();
    let address: IpAddr = all[2].parse().unwrap();
    let at = SocketAddr::new(address, all[3].parse().unwrap());
    // This worker blocks, and another one waits meanwhile.
    std::thread::sleep(Duration::from_millis(300));
    if all[1] == "serve" {
        let listener = TcpListener::bind(at).await?;
        println!("ready");
        loop {
            tokio::spawn(echo(listener.accept().await?.0));
        }
    }
    let calls: Vec<_> = (0..10).map(|number| tokio::spawn(call(at, number))).collect();
    for each in calls {
        assert!(tokio::time::timeout(Duration::from_secs(60), each).await.unwrap().unwrap()?);
    }
    println!("all answered");
    Ok(())
}
