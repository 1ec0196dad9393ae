// Package fathom counts what a test asks of files: syncs, calls, bytes. It needs the program fathom in PATH (or FATHOM), Linux 5.3, and no
// root.
//
//	counts := fathom.Counting(t, func() { shop.Save(order) })
//	if counts.Fsyncs() > 1 {
//		t.Error(counts)
//	}
//
// Goroutines move between threads, so counts are of the whole process: tests that count cannot be parallel.
package fathom

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Counts by kind of file, by the names of `fathom check`: "fdatasync WAL", "bytes written file".
type Counts map[string]uint64

// Calls returns the number of calls of these names, on any kind of file.
func (c Counts) Calls(names ...string) uint64 {
	var sum uint64
	for kind, n := range c {
		for _, name := range names {
			if strings.SplitN(kind, " ", 2)[0] == name {
				sum += n
			}
		}
	}
	return sum
}

// Fsyncs returns the number of calls that wait for the medium.
func (c Counts) Fsyncs() uint64 {
	return c.Calls("fsync", "fdatasync", "sync_file_range", "sync", "msync")
}

// BytesWritten returns the bytes that calls wrote to files.
func (c Counts) BytesWritten() uint64 {
	var sum uint64
	for kind, n := range c {
		if strings.HasPrefix(kind, "bytes written") {
			sum += n
		}
	}
	return sum
}

// Counting counts what the process asks of files while work runs; where that is not possible, it skips the test with the reason.
func Counting(t testing.TB, work func()) Counts {
	t.Helper()
	before, err := read()
	if err != nil {
		t.Skip("fathom cannot count here: ", err)
	}
	work()
	after, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for kind, n := range before {
		if after[kind] -= n; after[kind] == 0 {
			delete(after, kind)
		}
	}
	return after
}

// prSetPtracer says who may attach where only ancestors may (Yama; prctl(2)).
const prSetPtracer = 0x59616d61

type counter struct {
	input  io.Writer
	output *bufio.Reader
}

var (
	lock    sync.Mutex
	running *counter
)

func read() (Counts, error) {
	lock.Lock()
	defer lock.Unlock()
	if running == nil {
		started, err := start()
		if err != nil {
			return nil, err
		}
		running = started
	}
	line, err := running.ask("count")
	if err != nil {
		return nil, err
	}
	var answer struct{ Counts Counts }
	return answer.Counts, json.Unmarshal(line, &answer)
}

func start() (*counter, error) {
	program := os.Getenv("FATHOM")
	if program == "" {
		program = "fathom"
	}
	command := exec.Command(program, "check", "attach", strconv.Itoa(os.Getpid()))
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return nil, err
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetPtracer, uintptr(command.Process.Pid), 0, 0, 0, 0)
	one := &counter{input, bufio.NewReader(output)}
	if _, err := one.ask("attach"); err != nil {
		return nil, err
	}
	return one, nil
}

func (c *counter) ask(question string) ([]byte, error) {
	if _, err := fmt.Fprintln(c.input, question); err != nil {
		return nil, err
	}
	line, err := c.output.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the program fathom cannot attach to this process: %w", err)
	}
	return line, nil
}
