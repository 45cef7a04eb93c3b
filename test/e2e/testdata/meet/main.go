// Meet is a member of a gang: all of them connect to rank 0, which adds up what
// they say, and tells them the sum. In a first attempt they then stay connected until one of
// them is gone, of which all others die.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := meet(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func meet() error {
	rank, size := envInt("RANK"), envInt("WORLD_SIZE")
	addr := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	if rank == 0 {
		return runLeader(addr, size)
	}
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(conn, rank+1)
	r := bufio.NewReader(conn)
	sum, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Print("sum ", sum)
	return waitForPeer(r)
}

// runLeader adds up what the others say and its own 1.
func runLeader(addr string, size int) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	sum := 1
	var others []*bufio.ReadWriter
	for len(others) < size-1 {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		rw := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
		var n int
		if _, err := fmt.Fscanln(rw, &n); err != nil {
			return err
		}
		sum += n
		others = append(others, rw)
	}
	fmt.Println("sum", sum)
	for _, rw := range others {
		fmt.Fprintln(rw, sum)
		if err := rw.Flush(); err != nil {
			return err
		}
	}
	if os.Getenv("MUSTER_ATTEMPT") != "1" {
		return nil
	}
	exited := make(chan error)
	for _, rw := range others {
		go func() { exited <- waitForPeer(rw) }()
	}
	return <-exited
}

// waitForPeer returns an error when the other side is gone; after a first attempt it does
// not wait for that.
func waitForPeer(r io.Reader) error {
	if os.Getenv("MUSTER_ATTEMPT") != "1" {
		return nil
	}
	_, err := io.Copy(io.Discard, r)
	return fmt.Errorf("another member is gone: %v", err)
}

// dial waits for the leader to listen.
func dial(addr string) (net.Conn, error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil || time.Now().After(end) {
			return conn, err
		}
	}
}

func envInt(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		fmt.Println(name, err)
		os.Exit(2)
	}
	return n
}
