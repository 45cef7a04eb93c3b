//go:build !unix

package output

// reader returns what reads the next piece into the buffer behind end.
func (p *pump) reader() func() (int, error) {
	return func() (int, error) {
		p.acquireBuffer()
		return p.r.Read(p.buf[p.end:])
	}
}
