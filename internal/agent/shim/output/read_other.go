//go:build !unix

package output

// reader returns a function that reads into the buffer after end.
func (p *pump) reader() func() (int, error) {
	return func() (int, error) {
		p.acquireBuffer()
		return p.r.Read(p.buf[p.end:])
	}
}
