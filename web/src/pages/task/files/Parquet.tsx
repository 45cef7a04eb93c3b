import { Center, Loader } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { decompress } from "fzstd";
import { parquetMetadataAsync, parquetReadObjects, parquetSchema, type AsyncBuffer, type Compressors } from "hyparquet";
import { ErrorState } from "@/ui/feedback";
import { bytes, count } from "@/ui/format";
import css from "./files.module.css";
import { fetchRange } from "./range";
import { Sheet } from "./Sheet";

const maxRows = 200;
/** Beside Snappy, which the reader has: what most writers use. */
const compressors: Compressors = { ZSTD: (input, length) => decompress(input, new Uint8Array(length)) };
/** A row group that is larger than this many bytes is not read for its first rows. */
const maxRead = 64 << 20;

/** The schema and the first rows of a Parquet file; only the parts that hold them are fetched. */
export default function Parquet({ url, size }: { url: string; size: number }) {
  const { data, error, refetch } = useQuery({
    queryKey: ["artifact-parquet", url, size],
    staleTime: Infinity,
    gcTime: 60_000,
    retry: false,
    queryFn: async ({ signal }) => {
      let read = 0;
      const file: AsyncBuffer = {
        byteLength: size,
        slice: (from, to = size) => {
          read += to - from;
          if (read > maxRead) throw new Error(`Its first rows lie in more than ${bytes(maxRead)}: download the file instead`);
          return fetchRange(url, from, to, signal);
        },
      };
      const metadata = await parquetMetadataAsync(file);
      const columns = parquetSchema(metadata).children.map((c) => c.element.name);
      const total = Number(metadata.num_rows);
      const rows = total === 0 ? [] : await parquetReadObjects({ file, metadata, compressors, columns: columns.slice(0, 60), rowStart: 0, rowEnd: Math.min(total, maxRows) });
      const types = parquetSchema(metadata).children.map((c) => (c.element.logical_type?.type ?? c.element.converted_type ?? c.element.type ?? "group").toLowerCase());
      return { columns, types, total, groups: metadata.row_groups.length, rows: rows.map((r) => columns.map((c) => cell(r[c]))), read };
    },
  });
  if (error) return <ErrorState error={error} retry={() => void refetch()} title="This Parquet file could not be read" />;
  if (!data) {
    return (
      <Center h={200} role="status" aria-label="Loading the preview">
        <Loader size="sm" />
      </Center>
    );
  }
  return (
    <>
      <div className={css.note}>
        {count(data.total)} rows in {count(data.groups)} {data.groups === 1 ? "group" : "groups"}, {count(data.columns.length)} columns. The first {count(data.rows.length)} rows{data.read < size && `, from ${bytes(data.read)} of ${bytes(size)}`}.
      </div>
      <Sheet header={data.columns.map((c, i) => `${c} (${data.types[i] ?? ""})`)} rows={data.rows} />
    </>
  );
}

function cell(v: unknown): string {
  if (v === null || v === undefined) return "";
  if (v instanceof Date) return v.toISOString();
  if (v instanceof Uint8Array) return `${bytes(v.length)} binary`;
  if (typeof v === "string") return v.slice(0, 500);
  return JSON.stringify(v, (_, x: unknown) => (typeof x === "bigint" ? Number(x) : x)).slice(0, 500);
}
