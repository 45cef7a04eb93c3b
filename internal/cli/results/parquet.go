package results

import (
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster"
)

const (
	maxGroupRows  = 128 << 10 // rows in a row group, and
	maxGroupBytes = 64 << 20  // bytes of texts in it, which are in memory until the group is written
)

// ordered is a group whose columns keep their order; those of parquet.Group are sorted.
type ordered struct {
	parquet.Group

	fields []parquet.Field
}

// Fields implements parquet.Node.
func (g *ordered) Fields() []parquet.Field { return g.fields }

// parquetSchema returns columns that are all optional. Texts are UTF-8, times are milliseconds in UTC.
func parquetSchema(columns []column) *parquet.Schema {
	root := &ordered{Group: parquet.Group{}}
	for _, c := range columns {
		node := parquet.String()
		switch c.kind {
		case boolean:
			node = parquet.Leaf(parquet.BooleanType)
		case integer:
			node = parquet.Int(64)
		case number:
			node = parquet.Leaf(parquet.DoubleType)
		case timestamp:
			node = parquet.Timestamp(parquet.Millisecond)
		case text, null:
		}
		node = parquet.Optional(node)
		root.Group[c.name] = node
		root.fields = append(root.fields, parquet.Group{c.name: node}.Fields()[0])
	}
	return parquet.NewSchema("results", root)
}

// writeParquet writes a Parquet file, compressed with Zstandard.
func writeParquet(dst io.Writer, columns *schema, s *spool) error {
	all := columns.all()
	w := parquet.NewGenericWriter[any](dst, parquetSchema(all), parquet.Compression(&parquet.Zstd), parquet.CreatedBy("muster", "", ""))
	cells := make(parquet.Row, len(all))
	rows, size := 0, 0
	for r, err := range s.all() {
		if err != nil {
			return err
		}
		for i, v := range columns.values(r) {
			cells[i] = parquetValue(v).Level(0, 1, i)
			if v == nil {
				cells[i] = parquet.NullValue().Level(0, 0, i)
			}
			if t, ok := v.(string); ok {
				size += len(t)
			}
		}
		if _, err := w.WriteRows([]parquet.Row{cells}); err != nil {
			return err
		}
		if rows++; rows == maxGroupRows || size >= maxGroupBytes {
			rows, size = 0, 0
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return w.Close()
}

func parquetValue(v value) parquet.Value {
	switch v := v.(type) {
	case bool:
		return parquet.BooleanValue(v)
	case int64:
		return parquet.Int64Value(v)
	case float64:
		return parquet.DoubleValue(v)
	case string:
		return parquet.ByteArrayValue([]byte(v))
	case muster.Time:
		return parquet.Int64Value(v.Std().UnixMilli())
	}
	return parquet.NullValue()
}
