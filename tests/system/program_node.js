// program_node.js - a server and a client in Node.js: http, net, dgram, and files beside them; started by program_loops.py. Received data
// is compared with sent data, and files with what was written.
//
// Usage: node program_node.js server ADDRESS PORT DIRECTORY    until it is ended
//        node program_node.js client ADDRESS PORT DIRECTORY    prints a line for each thing that was right
const crypto = require('crypto'), dgram = require('dgram'), fs = require('fs'), http = require('http'), net = require('net');
const [role, address, port, directory] = [process.argv[2], process.argv[3], Number(process.argv[4]), process.argv[5]];
const kEcho = port + 1, kEnds = port + 2;
const udp = net.isIPv6(address) ? 'udp6' : 'udp4';
const text = 'a file of the server\n'.repeat(500);

function server() {
  const path = `${directory}/served`;
  fs.writeFileSync(path, text);
  const web = http.createServer((request, response) => {
    if (request.url === '/file') return response.end(fs.readFileSync(path));  // opens a new descriptor each time
    const hash = crypto.createHash('sha256');
    request.on('data', part => hash.update(part)).on('end', () => response.end(hash.digest('hex')));
  });
  const quiet = socket => socket.on('error', () => {});
  const echo = net.createServer({ allowHalfOpen: true }, socket => quiet(socket).pipe(socket));
  const ends = net.createServer(socket => quiet(socket).write('bye\n', () => socket.destroy()));
  const datagrams = dgram.createSocket(udp).on('message', (data, from) => datagrams.send(data, from.port, from.address));
  web.listen(port, address, () => echo.listen(kEcho, address, () => ends.listen(kEnds, address, () =>
    datagrams.bind(port, address, () => console.log('ready')))));
}

const connected = to => new Promise((done, failed) => {
  const socket = net.connect(to, address).once('error', failed).once('connect', () => done(socket));
});
const pause = time => new Promise(done => setTimeout(done, time));
function fetch(path, agent, body) {
  return new Promise((done, failed) => {
    const options = { host: address, port, path, agent, method: body ? 'POST' : 'GET' };
    const request = http.request(options, response => {
      const parts = [];
      response.on('data', part => parts.push(part)).on('end', () => done(Buffer.concat(parts).toString())).on('error', failed);
    });
    request.on('error', failed).end(body);
  });
}
function must(right, what) {
  if (!right) throw new Error(what);
}

const steps = {
  async files_served() {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    for (let i = 0; i < 100; ++i) must(await fetch('/file', agent) === text, 'kept alive');
    agent.destroy();
    const all = await Promise.all(Array.from({ length: 50 }, () => fetch('/file', false)));
    must(all.every(each => each === text), 'new connections');
  },
  async posted() {
    const body = crypto.randomBytes(3000000);
    must(await fetch('/post', false, body) === crypto.createHash('sha256').update(body).digest('hex'), 'another hash');
  },
  async echoed() {
    const socket = await connected(kEcho), data = crypto.randomBytes(2000000), parts = [];
    const end = new Promise((done, failed) => socket.on('data', part => parts.push(part)).on('end', done).on('error', failed));
    socket.end(data);
    await end;
    must(Buffer.concat(parts).equals(data), 'other bytes');
  },
  async peer_ended() {
    const socket = await connected(kEnds), parts = [];
    await new Promise((done, failed) => socket.on('data', part => parts.push(part)).on('end', done).on('error', failed));
    must(Buffer.concat(parts).toString() === 'bye\n', 'other words');
  },
  // A file gets the descriptor number of a connection that was closed with data in flight.
  async files_after_destroy() {
    const path = `${directory}/written`;
    let wanted = '';
    for (let i = 0; i < 30; ++i) {
      const socket = await connected(kEcho);
      socket.write('x'.repeat(3000));
      await pause(i % 3);
      socket.destroy();
      await pause(i % 2);
      fs.appendFileSync(path, `line ${i}\n`);
      wanted += `line ${i}\n`;
      must(fs.readFileSync(path, 'utf8') === wanted, `the file after ${i}`);
    }
  },
  async datagrams_echoed() {
    const socket = dgram.createSocket(udp), data = crypto.randomBytes(1000);
    const came = new Promise(done => socket.on('message', done));
    const again = setInterval(() => socket.send(data, port, address), 200);
    socket.send(data, port, address);
    must((await came).equals(data), 'another datagram');
    clearInterval(again);
    socket.close();
  },
  async refused() {
    const error = await connected(port + 9).then(() => 'connected', each => each.code);
    must(error === 'ECONNREFUSED', error);
  },
};

async function client() {
  for (const [name, step] of Object.entries(steps)) {
    await step().catch(error => {
      console.log(`${name}: ${error.stack}`);
      process.exit(1);
    });
    console.log(name);
  }
  process.exit(0);
}

if (role === 'server') server();
else client();
