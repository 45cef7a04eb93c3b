package sqlite

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/ncruces/go-sqlite3"
)

// params binds the parameters of a statement in their order. After the first error
// its methods do nothing. A parameter that is not bound is NULL.
type params struct {
	s      *sqlite3.Stmt
	grants *grantEncoder
	n      int
	err    error
}

// grantEncoder encodes grants. It keeps the last one: the tasks of an array have equal ones, and each writes its own several times.
type grantEncoder struct {
	grant   muster.Grant
	encoded []byte
}

func (e *grantEncoder) encode(g *muster.Grant) ([]byte, error) {
	if e.encoded != nil && e.grant.Equal(g) {
		return e.encoded, nil
	}
	b, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	e.grant, e.encoded = *g, b
	e.grant.GPUs = slices.Clone(g.GPUs)
	return b, nil
}

func (p *params) int(v int64) {
	p.n++
	if p.err == nil {
		p.err = p.s.BindInt64(p.n, v)
	}
}

// nullInt binds NULL for 0.
func (p *params) nullInt(v int64) {
	if v == 0 {
		p.n++
		return
	}
	p.int(v)
}

func (p *params) time(t muster.Time) { p.nullInt(int64(t)) }

func (p *params) bool(v bool) {
	if v {
		p.int(1)
	} else {
		p.int(0)
	}
}

func (p *params) float(v float64) {
	p.n++
	if p.err == nil {
		p.err = p.s.BindFloat(p.n, v)
	}
}

func (p *params) text(v string) {
	p.n++
	if p.err == nil {
		p.err = p.s.BindText(p.n, v)
	}
}

// nullText binds NULL for "".
func (p *params) nullText(v string) {
	if v == "" {
		p.n++
		return
	}
	p.text(v)
}

func (p *params) raw(v []byte) {
	p.n++
	if len(v) > 0 && p.err == nil {
		p.err = p.s.BindRawText(p.n, v)
	}
}

func (p *params) blob(v []byte) {
	p.n++
	if p.err == nil {
		p.err = p.s.BindBlob(p.n, v)
	}
}

// json binds v as JSON unless it is absent.
func (p *params) json(v any, absent bool) {
	if absent || p.err != nil {
		p.n++
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		p.err = fmt.Errorf("encode %T: %w", v, err)
		return
	}
	p.raw(b)
}

func (p *params) grant(g *muster.Grant) {
	b, err := p.grants.encode(g)
	if err != nil {
		p.err = cmp.Or(p.err, fmt.Errorf("encode a grant: %w", err))
	}
	p.raw(b)
}

// values binds strings, whole numbers and booleans.
func values(list ...any) func(*params) {
	return func(p *params) {
		for _, v := range list {
			switch v := v.(type) {
			case string:
				p.text(v)
			case int:
				p.int(int64(v))
			case int64:
				p.int(v)
			case bool:
				p.bool(v)
			default:
				p.err = fmt.Errorf("bind %T", v)
			}
		}
	}
}

// columns reads the columns of a row in their order and keeps the first error.
type columns struct {
	s   *sqlite3.Stmt
	n   int
	err error
}

func (c *columns) int() int64 {
	c.n++
	return c.s.ColumnInt64(c.n - 1)
}

func (c *columns) time() muster.Time { return muster.Time(c.int()) }

func (c *columns) bool() bool { return c.int() != 0 }

func (c *columns) float() float64 {
	c.n++
	return c.s.ColumnFloat(c.n - 1)
}

func (c *columns) text() string {
	c.n++
	return c.s.ColumnText(c.n - 1)
}

func (c *columns) raw() []byte {
	c.n++
	b := c.s.ColumnRawText(c.n - 1)
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...) // SQLite owns b until the next step
}

func (c *columns) blob() []byte {
	c.n++
	return c.s.ColumnBlob(c.n-1, nil)
}

// json decodes into v, which is unchanged if the column is NULL.
func (c *columns) json(v any) {
	c.n++
	b := c.s.ColumnRawText(c.n - 1)
	if len(b) == 0 || c.err != nil {
		return
	}
	if err := json.Unmarshal(b, v); err != nil {
		c.err = fmt.Errorf("decode %T in column %s: %w", v, c.s.ColumnName(c.n-1), err)
	}
}

// null reports whether the next column is NULL, and skips it if so.
func (c *columns) null() bool {
	if c.s.ColumnType(c.n) == sqlite3.NULL {
		c.n++
		return true
	}
	return false
}
