//go:build !unix

package output

// reader returns a function that reads into space.
func (p *pump) reader() func() (int, error) {
	return func() (int, error) {
		return p.r.Read(p.space())
	}
}
