// RuntimeSelectors.java - a server and clients of Java's selectors, whose threads wait before there is a socket; for sockets_runtimes.py.
//
// Usage: java RuntimeSelectors.java serve|call ADDRESS PORT
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public class RuntimeSelectors {
  interface Handler {
    void handle(SelectionKey key) throws IOException;
  }

  static final int CLIENTS = 10, ROUNDS = 50;

  static Selector selector;
  static final CountDownLatch answered = new CountDownLatch(CLIENTS);

  static void start(Handler handler) throws IOException, InterruptedException {
    selector = Selector.open();
    Thread thread = new Thread(() -> {
      try {
        while (true) {
          selector.select();
          for (SelectionKey key : selector.selectedKeys()) handler.handle(key);
          selector.selectedKeys().clear();
        }
      } catch (IOException error) {
        error.printStackTrace();
        System.exit(1);
      }
    });
    thread.setDaemon(true);
    thread.start();
    Thread.sleep(300);
  }

  static void add(SelectableChannel channel, int wanted) throws IOException {
    channel.configureBlocking(false);
    channel.register(selector, wanted);
    selector.wakeup();
  }

  static void serve(SelectionKey key) throws IOException {
    if (key.isAcceptable()) {
      add(((ServerSocketChannel) key.channel()).accept(), SelectionKey.OP_READ);
      return;
    }
    SocketChannel channel = (SocketChannel) key.channel();
    ByteBuffer bytes = ByteBuffer.allocate(4096);
    if (channel.read(bytes) < 0) {
      channel.close();
      return;
    }
    bytes.flip();
    while (bytes.hasRemaining()) channel.write(bytes);
  }

  // The byte is the round's number.
  static void call(SelectionKey key) throws IOException {
    SocketChannel channel = (SocketChannel) key.channel();
    ByteBuffer bytes = ByteBuffer.allocate(2);
    if (key.isConnectable()) {
      channel.finishConnect();
      key.interestOps(SelectionKey.OP_READ);
      bytes.put((byte) 1);
    } else {
      if (channel.read(bytes) != 1) throw new IOException("not one byte");
      if (bytes.get(0) == ROUNDS) {
        answered.countDown();
        return;
      }
      bytes.put(0, (byte) (bytes.get(0) + 1));
    }
    bytes.flip();
    channel.write(bytes);
  }

  public static void main(String[] all) throws Exception {
    InetSocketAddress at = new InetSocketAddress(all[1], Integer.parseInt(all[2]));
    if (all[0].equals("serve")) {
      start(RuntimeSelectors::serve);
      ServerSocketChannel listener = ServerSocketChannel.open();
      listener.bind(at);
      add(listener, SelectionKey.OP_ACCEPT);
      System.out.println("ready");
      Thread.sleep(Long.MAX_VALUE);
    }
    start(RuntimeSelectors::call);
    for (int i = 0; i < CLIENTS; ++i) {
      SocketChannel channel = SocketChannel.open();
      channel.configureBlocking(false);
      channel.connect(at);
      add(channel, SelectionKey.OP_CONNECT);
    }
    System.out.println(answered.await(60, TimeUnit.SECONDS) ? "all answered" : "not answered: " + answered.getCount());
  }
}
