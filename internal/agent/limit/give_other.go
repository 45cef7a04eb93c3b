//go:build !linux

package limit

func (g *giver) walk(dir string) error { return g.slowly(dir) }
