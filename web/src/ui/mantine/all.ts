// All style sheets of Mantine: 20 KB that the first page does not need.
import "@mantine/core/styles.layer.css";
