import { Group, Kbd, Modal, Table } from "@mantine/core";
import type { NavItem } from "./nav";
import { shortcutsOf } from "./shortcuts";

export default function ShortcutHelp({ items, onClose }: { items: readonly NavItem[]; onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title="Keyboard shortcuts">
      <Table>
        <Table.Tbody>
          {shortcutsOf(items).map((s) => (
            <Table.Tr key={s.does}>
              <Table.Td>
                <Group gap={4} wrap="nowrap">
                  {s.keys.map((k) => (
                    <Kbd key={k}>{k}</Kbd>
                  ))}
                </Group>
              </Table.Td>
              <Table.Td>{s.does}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}
