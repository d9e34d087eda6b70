"""Translation of a corpus on many machines, with Apache Beam."""
