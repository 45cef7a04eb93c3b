package egress

import (
	"context"
	"io"
	"net"
	"testing"
)

// BenchmarkTunnel measures the throughput of a tunnel.
func BenchmarkTunnel(b *testing.B) {
	client, task := pair(b)
	upstream, host := pair(b)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tunnel(ctx, client, upstream, nil, tunnelIdleTimeout)
	}()
	piece := make([]byte, 1<<20)
	b.SetBytes(int64(len(piece)))
	go func() {
		for range b.N {
			if _, err := host.Write(piece); err != nil {
				b.Error(err)
				break
			}
		}
		_ = host.Close()
	}()
	if n, err := io.Copy(io.Discard, task); err != nil || n != int64(b.N)*int64(len(piece)) {
		b.Errorf("%d bytes: %v", n, err)
	}
	cancel()
	<-done
}

// pair returns a connection over the loopback device.
func pair(b *testing.B) (net.Conn, net.Conn) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	one, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = one.Close(), other.Close() })
	return one, other
}
