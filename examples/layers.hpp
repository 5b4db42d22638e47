// A matrix, and the few local operations that the training examples build networks of. All are
// written out as loops: what is shown is where the collectives go.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/differentiation/scope.hpp>
#include <lockstep/tensor.hpp>

// f64 [rows, columns].
struct Matrix {
  Matrix(std::int64_t rows_, std::int64_t columns_)
      : rows(rows_), columns(columns_), values(static_cast<std::size_t>(rows_ * columns_), 0.0) {}
  explicit Matrix(const lockstep::FloatTensor& x) : Matrix(x.shape()[0], x.shape()[1]) {
    const auto from = x.values<double>();
    values.assign(from.begin(), from.end());
  }
  double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  double at(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  lockstep::FloatTensor tensor() const {
    return lockstep::FloatTensor::of<double>({rows, columns}, std::span<const double>(values));
  }

  std::int64_t rows;
  std::int64_t columns;
  std::vector<double> values;
};

// The matrix whose element (i, j) is value(i, j).
template <class Value>
Matrix matrix(std::int64_t rows, std::int64_t columns, const Value& value) {
  Matrix m(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) m.at(i, j) = static_cast<double>(value(i, j));
  }
  return m;
}

// -2 .. 2, different from place to place: data whose sums and products are exact.
inline int small_number(std::int64_t i, std::int64_t j, std::int64_t salt) {
  return static_cast<int>((i * i * 7 + j * 11 + i * j * 3 + salt * 5) % 5) - 2;
}

inline Matrix transpose(const Matrix& m) {
  return matrix(m.columns, m.rows, [&](auto i, auto j) { return m.at(j, i); });
}
inline Matrix times(const Matrix& a, const Matrix& b) {
  return matrix(a.rows, b.columns, [&](auto i, auto j) {
    double sum = 0;
    for (std::int64_t k = 0; k < a.columns; ++k) sum += a.at(i, k) * b.at(k, j);
    return sum;
  });
}
inline Matrix columns(const Matrix& m, std::int64_t begin, std::int64_t end) {
  return matrix(m.rows, end - begin, [&](auto i, auto j) { return m.at(i, begin + j); });
}
inline Matrix rows(const Matrix& m, std::int64_t begin, std::int64_t end) {
  return matrix(end - begin, m.columns, [&](auto i, auto j) { return m.at(begin + i, j); });
}

// --- Layers on tracked values

using Value = lockstep::differentiation::Tracked<lockstep::FloatTensor>;

// a b; da = dy b', db = a' dy.
template <class Scope>
Value matmul(const Scope& scope, const Value& a, const Value& b) {
  const Matrix x(a.value());
  const Matrix w(b.value());
  return scope.local(times(x, w).tensor(), {a, b}, [x, w](const lockstep::FloatTensor& upstream) {
    const Matrix dy(upstream);
    return std::vector{times(dy, transpose(w)).tensor(), times(transpose(x), dy).tensor()};
  });
}

// f(x), elementwise; dx = dy f'(x).
template <class Scope>
Value elementwise(const Scope& scope, const Value& a, double (*f)(double),
                  double (*derivative)(double)) {
  const Matrix x(a.value());
  const Matrix y = matrix(x.rows, x.columns, [&](auto i, auto j) { return f(x.at(i, j)); });
  return scope.local(y.tensor(), {a}, [x, derivative](const lockstep::FloatTensor& upstream) {
    const Matrix dy(upstream);
    return std::vector{matrix(x.rows, x.columns, [&](auto i, auto j) {
                         return dy.at(i, j) * derivative(x.at(i, j));
                       }).tensor()};
  });
}
template <class Scope>
Value relu(const Scope& scope, const Value& x) {
  return elementwise(
      scope, x, [](double v) { return v > 0 ? v : 0; }, [](double v) { return v > 0 ? 1.0 : 0; });
}

// Half the sum of the squares of y - target, as [1, 1]; dy = (y - target) dloss.
template <class Scope>
Value half_squared_error(const Scope& scope, const Value& y, const Matrix& target) {
  Matrix error(y.value());
  double loss = 0;
  for (std::size_t i = 0; i < error.values.size(); ++i) {
    error.values[i] -= target.values[i];
    loss += error.values[i] * error.values[i] / 2;
  }
  return scope.local(matrix(1, 1, [&](auto, auto) { return loss; }).tensor(), {y},
                     [error](const lockstep::FloatTensor& upstream) {
                       Matrix dy = error;
                       for (double& v : dy.values) v *= Matrix(upstream).at(0, 0);
                       return std::vector{dy.tensor()};
                     });
}

// The gradient of a loss with respect to itself.
inline lockstep::FloatTensor one() {
  return matrix(1, 1, [](auto, auto) { return 1; }).tensor();
}

// Sign descent with steps of 1/16: weights stay multiples of it, and every product exact.
inline void step(Matrix& weights, const lockstep::FloatTensor& gradient) {
  const Matrix g(gradient);
  for (std::size_t i = 0; i < g.values.size(); ++i) {
    if (g.values[i] != 0) weights.values[i] -= std::copysign(1.0 / 16, g.values[i]);
  }
}
